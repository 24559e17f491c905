package app

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
)

const (
	mcpPath     = "/mcp"
	mcpResource = base + "/mcp"
	mcpMetadata = base + "/.well-known/oauth-protected-resource/mcp"
)

// assistant returns the headers of a connector: there is no X-Tenant-Id.
func assistant(token string) header {
	return header{
		"Authorization":        "Bearer " + token,
		"Content-Type":         "application/json",
		"Accept":               "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2025-06-18",
	}
}

func request(method string, params any) string {
	content, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
	return string(content)
}

func calling(tool string, arguments any) string {
	return request("tools/call", map[string]any{"name": tool, "arguments": arguments})
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",` +
	`"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`

// everyMessage returns one message of each kind.
func everyMessage() map[string]string {
	return map[string]string{
		"initialize":   initialize,
		"initialized":  `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		"ping":         request("ping", nil),
		"tools/list":   request("tools/list", nil),
		"whoami":       calling("whoami", map[string]any{}),
		"list":         calling("list_programmes", map[string]any{}),
		"get":          calling("get_programme", map[string]any{"id": uuid.NewString()}),
		"unknown tool": calling("drop_table", map[string]any{}),
		"malformed":    `{`,
		"empty":        ``,
	}
}

type toolResult struct {
	Result struct {
		Content    []struct{ Type, Text string }
		Structured json.RawMessage `json:"structuredContent"`
		IsError    bool
	}
	Error struct {
		Code    int
		Message string
	}
}

// result returns the result of a tool call.
func (a answer) result(t *testing.T) toolResult {
	t.Helper()
	r := decoded[toolResult](t, a.wants(t, 200).header(t, "Content-Type", "application/json"))
	notice := 1 // accompanies user-written text; errors are our own text
	if r.Result.IsError {
		notice = 0
	}
	if len(r.Result.Content) != 1+notice || r.Result.Content[0].Type != "text" {
		t.Fatalf("no result of a tool: %d %s", a.Status, a.Body)
	}
	var text, structure any
	if !r.Result.IsError {
		must(t, json.Unmarshal([]byte(r.Result.Content[0].Text), &text))
		must(t, json.Unmarshal(r.Result.Structured, &structure))
		if !reflect.DeepEqual(text, structure) {
			t.Errorf("text and structured content differ: %s", a.Body)
		}
	}
	return r
}

// refusedByProtocol checks a JSON-RPC error that must not be cached.
func (a answer) refusedByProtocol(t *testing.T, status int) answer {
	t.Helper()
	a.wants(t, status).header(t, "Content-Type", "application/json").header(t, "Cache-Control", "no-store")
	if r := decoded[toolResult](t, a); r.Error.Code != -32600 || r.Error.Message == "" {
		a.fail(t, "the error -32600")
	}
	return a
}

// assistedBy creates a workspace and the token of a connector in it for the MCP endpoint.
func (s *service) assistedBy(given ...perm.Permission) (workspaceID, user uuid.UUID, token string) {
	s.t.Helper()
	workspaceID, user = s.member(given...)
	return workspaceID, user, s.token(claims(s.Grant(standing.Connector, workspaceID, user, mcpResource, given...)))
}

// newAssistant is newService with the headers of a connector that may read programmes.
func newAssistant(t *testing.T) (*service, header) {
	s := newService(t)
	_, _, token := s.assistedBy(perm.ProgrammesRead)
	return s, assistant(token)
}

func (s *service) post(h header, body string) answer {
	s.t.Helper()
	return s.do("POST", mcpPath, h, body)
}

func TestWhoami_ReturnsUserWorkspaceAndPermissions(t *testing.T) {
	s := newService(t)
	workspaceID, user, token := s.assistedBy(perm.ProgrammesRead, perm.ProgrammesWrite)
	// One permission is lost, another was never granted.
	s.Member(workspaceID, user, perm.ProgrammesRead, perm.EngageReadForms)
	pat := s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()
	s.Exec("update account.tenants set name = 'Harbour & Sons' where id = $1", workspaceID)
	for kind, credential := range map[string]string{"connector": token, "personal_access_token": pat} {
		who := structured[struct {
			User, Workspace struct{ ID, Name string }
			Permissions     []string
			Connection      struct {
				Kind, Name, ClientID string
				Since, EndsAt        time.Time
			}
		}](t, s.post(assistant(credential), calling("whoami", map[string]any{})))
		left, connects := time.Until(who.Connection.EndsAt), kind == "connector"
		if who.User.ID != user.String() || who.User.Name != "A Person" ||
			who.Workspace.ID != workspaceID.String() || who.Workspace.Name != "Harbour & Sons" ||
			!slices.Equal(who.Permissions, []string{"programmes:read:programmes"}) || who.Connection.Kind != kind ||
			left < 29*24*time.Hour || left > 31*24*time.Hour || time.Since(who.Connection.Since) > time.Hour ||
			connects != (who.Connection.ClientID != "") || connects != (who.Connection.Name == "An application") {
			t.Errorf("%s: %+v", kind, who)
		}
	}
}

// The tools have the same rules and record format as the REST routes.
func TestTools_MatchRESTRoutes(t *testing.T) {
	s := newService(t)
	workspaceID, user, token := s.assistedBy(perm.ProgrammesRead)
	s.Programmes(workspaceID, 7)
	s.Exec(`update resource.programmes set status = 'active', starts_on = '2026-04-01', summary = 'Tea & <b>cake</b>'
		where {mine} and name in ('Programme 2', 'Programme 5', 'Programme 6')`)
	rest := s.holding(workspaceID, user, perm.ProgrammesRead)
	h := assistant(token).with("X-Tenant-Id", "rubbish") // which is not read here
	same := func(query string, arguments any) (next string) {
		t.Helper()
		want := pageOf[map[string]any](s, listPath+query, rest)
		got := structured[paged[map[string]any]](t, s.post(h, calling("list_programmes", arguments)))
		next = got.Meta.NextCursor // differs each time it is sealed
		if !reflect.DeepEqual(want.Data, got.Data) || got.Meta.Count != want.Meta.Count ||
			(next != "") != (want.Meta.NextCursor != "") {
			t.Errorf("%s:\n%v\n%v", query, want, got)
		}
		return next
	}
	same("", nil)
	same("", map[string]any{"limit": nil, "cursor": "", "status": nil})
	same("?status=active&limit=2", map[string]any{"status": "active", "limit": 2})
	same("?q=CAKE", map[string]any{"q": "CAKE", "limit": "50"})
	next := same("?limit=3", map[string]any{"limit": 3})
	same("?limit=3", map[string]any{"limit": json.Number("3.0")})
	same("?limit=20", map[string]any{"limit": json.Number("2e1")})
	next = same("?limit=3&cursor="+next, map[string]any{"limit": 3, "cursor": next})
	if last := same("?limit=3&cursor="+next, map[string]any{"limit": 3, "cursor": next}); last != "" {
		t.Error("the list does not end")
	}
	id := s.Programmes(workspaceID, 1)[0].String()
	want := s.get(listPath+"/"+id, rest).Body
	got := s.post(assistant(token), calling("get_programme", map[string]any{"id": id})).result(t)
	if string(got.Result.Structured) != want {
		t.Errorf("%s\n%s", got.Result.Structured, want)
	}
}

func TestTools_InvalidArgumentsAreResults(t *testing.T) {
	s := newService(t)
	workspaceID, _, token := s.assistedBy(perm.ProgrammesRead)
	s.Programmes(workspaceID, 3)
	elsewhere := s.Programmes(s.Workspace(), 1)[0].String()
	type arguments = map[string]any
	const list, only = "list_programmes", "This tool takes only these arguments: "
	for _, c := range []struct {
		tool      string
		arguments any
		says      string
	}{
		{list, arguments{"limit": 0}, "limit: Must be an integer"},
		{list, arguments{"limit": -1}, "limit"},
		{list, arguments{"limit": 1.5}, "limit"},
		{list, arguments{"limit": "many"}, "limit"},
		{list, arguments{"limit": []int{1}}, "limit"},
		{list, arguments{"status": "open"}, "status"},
		{list, arguments{"cursor": "made up"}, "cursor"},
		{list, arguments{"query": "x", "sort": "x"}, `Unknown argument "query". ` + only + "limit, cursor, status, q."},
		{list, arguments{strings.Repeat("x", 65): 1}, "Unknown argument. " + only},
		{list, arguments{"q\U000E0100": 1}, "Unknown argument. " + only},
		{list, []int{1}, "must be one JSON object"},
		{list, "x", "must be one JSON object"},
		{list, arguments{"limit": 0, "status": "open"},
			"limit: Must be an integer of at least 1. Values over 200 count as 200.\nstatus: "},
		{"get_programme", arguments{}, "id: "},
		{"get_programme", arguments{"id": 7}, "id: "},
		{"get_programme", nil, "id: "},
		{"get_programme", arguments{"id": "x"}, "no programme with this id"},
		{"get_programme", arguments{"id": uuid.NewString()}, "no programme with this id"},
		{"get_programme", arguments{"id": elsewhere}, "no programme with this id"},
		{"whoami", arguments{"verbose": true}, "no arguments"},
	} {
		s.post(assistant(token), calling(c.tool, c.arguments)).failed(t, c.says)
	}
	s.post(assistant(token), request("tools/call", arguments{"name": list})).result(t)
}

// Contract, section 7a: the tool reports a module that is off; tools that need no module still work.
func TestTools_ModuleOffIsResult(t *testing.T) {
	s := newService(t)
	workspaceID, user, token := s.assistedBy(perm.ProgrammesRead)
	id := s.Programmes(workspaceID, 1)[0]
	pat := s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()
	for set, says := range map[string]string{
		"enabled = true, provisioned = false": "not set up in this workspace yet",
		"enabled = false":                     "not enabled",
	} {
		s.Exec("update account.tenant_modules set " + set + " where {mine}")
		for _, credential := range []string{token, pat} {
			for _, body := range []string{
				calling("list_programmes", nil), calling("list_programmes", map[string]any{"q": "x"}),
				calling("get_programme", map[string]any{"id": id}),
			} {
				s.post(assistant(credential), body).failed(t, says)
			}
			s.post(assistant(credential), calling("whoami", nil)).result(t)
			tools := s.post(assistant(credential), request("tools/list", nil)).wants(t, 200)
			if strings.Count(tools.Body, `"inputSchema"`) != 3 {
				tools.fail(t, "three tools")
			}
		}
	}
}

func TestTools_AreDescribed(t *testing.T) {
	s := newService(t)
	_, _, token := s.assistedBy()
	// Some models refuse a schema with a list of types.
	tools := s.post(assistant(token), request("tools/list", nil)).lacks(t, `"type":[`)
	var names []string
	for _, tool := range decoded[struct {
		Result struct {
			Tools []struct {
				Name, Title, Description  string
				InputSchema, OutputSchema map[string]any
				Annotations               map[string]any
			}
		}
	}](t, tools).Result.Tools {
		names = append(names, tool.Name)
		if tool.Title == "" || len(tool.Description) < 40 || tool.InputSchema["type"] != "object" ||
			tool.OutputSchema["type"] != "object" || tool.Annotations["readOnlyHint"] != true ||
			tool.Annotations["destructiveHint"] != false || tool.Annotations["openWorldHint"] != false {
			t.Errorf("%+v", tool)
		}
	}
	if slices.Sort(names); !slices.Equal(names, []string{"get_programme", "list_programmes", "whoami"}) {
		t.Errorf("%v", names)
	}
	a := s.post(assistant(token), initialize).header(t, "Mcp-Session-Id", "").header(t, "Cache-Control", "no-store")
	hello := decoded[struct {
		Result struct {
			Instructions string
			ServerInfo   struct{ Name string }
			Capabilities map[string]any
		}
	}](t, a).Result
	if _, logs := hello.Capabilities["logging"]; hello.Instructions == "" || hello.ServerInfo.Name != "almoner" ||
		hello.Capabilities["tools"] == nil || logs {
		t.Errorf("%s", a.Body)
	}
	s.post(assistant(token).with("Accept", "text/html"), request("ping", nil)).
		refusedByProtocol(t, 400).has(t, `"id":7`)
}

// structured returns the structured content of the result of a tool call.
func structured[T any](t *testing.T, a answer) (content T) {
	t.Helper()
	must(t, json.Unmarshal(a.result(t).Result.Structured, &content))
	return content
}

// failed checks that a tool call failed with a text that says why.
func (a answer) failed(t *testing.T, says string) {
	t.Helper()
	if r := a.result(t).Result; !r.IsError || r.Structured != nil || !strings.Contains(r.Content[0].Text, says) {
		a.fail(t, "a failed call that says "+says)
	}
}
