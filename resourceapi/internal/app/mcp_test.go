package app

import (
	"encoding/json"
	"fmt"
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
	var r toolResult
	a.decode(t, &r)
	notice := 1 // accompanies user-written text; errors are our own text
	if r.Result.IsError {
		notice = 0
	}
	if a.Status != 200 || len(r.Result.Content) != 1+notice || r.Result.Content[0].Type != "text" ||
		a.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("no result of a tool: %d %s", a.Status, a.Body)
	}
	var text, structure any
	if !r.Result.IsError {
		textErr := json.Unmarshal([]byte(r.Result.Content[0].Text), &text)
		structureErr := json.Unmarshal(r.Result.Structured, &structure)
		if textErr != nil || structureErr != nil || !reflect.DeepEqual(text, structure) {
			t.Errorf("text and structured content differ: %s", a.Body)
		}
	}
	return r
}

// refusedByProtocol checks a JSON-RPC error that must not be cached.
func (a answer) refusedByProtocol(t *testing.T, status int) {
	t.Helper()
	var r toolResult
	a.decode(t, &r)
	if a.Status != status || r.Error.Code != -32600 || r.Error.Message == "" ||
		a.Header.Get("Content-Type") != "application/json" || a.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %s %v", a.Status, a.Body, a.Header)
	}
}

// assistedBy creates a workspace and the token of a connector in it for the MCP endpoint.
func (s *service) assistedBy(given ...perm.Permission) (workspaceID, user uuid.UUID, token string) {
	s.t.Helper()
	workspaceID, user = s.member(given...)
	return workspaceID, user, s.token(claims(s.Grant(standing.Connector, workspaceID, user, mcpResource, given...)))
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
		var who struct {
			User, Workspace struct{ ID, Name string }
			Permissions     []string
			Connection      struct {
				Kind, Name, ClientID string
				Since, EndsAt        time.Time
			}
		}
		result := s.post(assistant(credential), calling("whoami", map[string]any{})).result(t).Result
		if err := json.Unmarshal(result.Structured, &who); err != nil {
			t.Fatal(err)
		}
		left := time.Until(who.Connection.EndsAt)
		if who.User.ID != user.String() || who.User.Name != "A Person" ||
			who.Workspace.ID != workspaceID.String() || who.Workspace.Name != "Harbour & Sons" ||
			!slices.Equal(who.Permissions, []string{"programmes:read:programmes"}) || who.Connection.Kind != kind ||
			left < 29*24*time.Hour || left > 31*24*time.Hour || time.Since(who.Connection.Since) > time.Hour {
			t.Errorf("%s: %+v", kind, who)
		}
		if (kind == "connector") != (who.Connection.ClientID != "") ||
			(kind == "connector") != (who.Connection.Name == "An application") {
			t.Errorf("%s: %+v", kind, who.Connection)
		}
	}
}

// The tools have the same rules and record format as the REST routes.
func TestTools_MatchRESTRoutes(t *testing.T) {
	s := newService(t)
	workspaceID, user, token := s.assistedBy(perm.ProgrammesRead)
	s.Programmes(workspaceID, 7)
	s.Exec(
		`update resource.programmes set status = 'active', starts_on = '2026-04-01', summary = 'Tea & <b>cake</b>'
			where {mine} and name in ('Programme 2', 'Programme 5', 'Programme 6')`,
	)
	rest := as(s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal(), workspaceID)
	same := func(query string, arguments any) (next string) {
		t.Helper()
		var want, got any
		s.get(listPath+query, rest).decode(t, &want)
		result := s.post(assistant(token), calling("list_programmes", arguments)).result(t).Result
		if err := json.Unmarshal(result.Structured, &got); err != nil {
			t.Fatal(err)
		}
		meta := func(v any) map[string]any { return v.(map[string]any)["meta"].(map[string]any) }
		next, _ = meta(got)["nextCursor"].(string)
		if _, more := meta(want)["nextCursor"]; more != (next != "") {
			t.Errorf("%s: more may follow: %v, %v", query, more, next != "")
		}
		delete(meta(want), "nextCursor") // differs each time it is sealed
		delete(meta(got), "nextCursor")
		if fmt.Sprint(want) != fmt.Sprint(got) {
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
	for _, c := range []struct {
		tool      string
		arguments any
		says      string
	}{
		{"list_programmes", map[string]any{"limit": 0}, "limit: Must be an integer"},
		{"list_programmes", map[string]any{"limit": -1}, "limit"},
		{"list_programmes", map[string]any{"limit": 1.5}, "limit"},
		{"list_programmes", map[string]any{"limit": "many"}, "limit"},
		{"list_programmes", map[string]any{"limit": []int{1}}, "limit"},
		{"list_programmes", map[string]any{"status": "open"}, "status"},
		{"list_programmes", map[string]any{"cursor": "made up"}, "cursor"},
		{
			"list_programmes", map[string]any{"query": "x", "sort": "name"},
			`Unknown argument "query". This tool takes only these arguments: limit, cursor, status, q.`,
		},
		{
			"list_programmes", map[string]any{strings.Repeat("x", 65): 1},
			"Unknown argument. This tool takes only these arguments: ",
		},
		{
			"list_programmes", map[string]any{"q\U000E0100": 1},
			"Unknown argument. This tool takes only these arguments: ",
		},
		{"list_programmes", []int{1}, "must be one JSON object"},
		{"list_programmes", "x", "must be one JSON object"},
		{
			"list_programmes", map[string]any{"limit": 0, "status": "open"},
			"limit: Must be an integer of at least 1. Values over 200 count as 200.\nstatus: ",
		},
		{"get_programme", map[string]any{}, "id: "},
		{"get_programme", map[string]any{"id": 7}, "id: "},
		{"get_programme", nil, "id: "},
		{"get_programme", map[string]any{"id": "x"}, "no programme with this id"},
		{"get_programme", map[string]any{"id": uuid.NewString()}, "no programme with this id"},
		{"get_programme", map[string]any{"id": elsewhere}, "no programme with this id"},
		{"whoami", map[string]any{"verbose": true}, "no arguments"},
	} {
		a := s.post(assistant(token), calling(c.tool, c.arguments))
		if r := a.result(t); !r.Result.IsError || !strings.Contains(r.Result.Content[0].Text, c.says) ||
			r.Result.Structured != nil {
			t.Errorf("%s %v: %s", c.tool, c.arguments, a.Body)
		}
	}
	s.post(assistant(token), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_programmes"}}`).
		result(t)
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
				if r := s.post(assistant(credential), body).result(t); !r.Result.IsError ||
					!strings.Contains(r.Result.Content[0].Text, says) {
					t.Errorf("%+v", r)
				}
			}
			s.post(assistant(credential), calling("whoami", nil)).result(t)
			if a := s.post(assistant(credential), request("tools/list", nil)); a.Status != 200 ||
				strings.Count(a.Body, `"inputSchema"`) != 3 {
				t.Errorf("%d %s", a.Status, a.Body)
			}
		}
	}
}

func TestTools_AreDescribed(t *testing.T) {
	s := newService(t)
	_, _, token := s.assistedBy()
	var list struct {
		Result struct {
			Tools []struct {
				Name, Title, Description  string
				InputSchema, OutputSchema map[string]any
				Annotations               map[string]any
			}
		}
	}
	tools := s.post(assistant(token), request("tools/list", nil))
	tools.decode(t, &list)
	if strings.Contains(tools.Body, `"type":[`) {
		t.Error("a schema has a list of types, which some models refuse")
	}
	var names []string
	for _, tool := range list.Result.Tools {
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
	var hello struct {
		Result struct {
			ProtocolVersion, Instructions string
			ServerInfo                    struct{ Name, Title, Version string }
			Capabilities                  map[string]any
		}
	}
	for _, version := range []string{"2025-11-25", "2025-06-18", "2025-03-26"} {
		a := s.post(
			assistant(token).with("Mcp-Protocol-Version", version),
			strings.ReplaceAll(initialize, "2025-06-18", version),
		)
		a.decode(t, &hello)
		if hello.Result.ProtocolVersion != version || hello.Result.Instructions == "" ||
			hello.Result.ServerInfo.Name != "almoner" || hello.Result.Capabilities["tools"] == nil {
			t.Errorf("%s", a.Body)
		}
		if _, logs := hello.Result.Capabilities["logging"]; logs || a.Header.Get("Mcp-Session-Id") != "" ||
			a.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %v", a.Body, a.Header)
		}
	}
	unreadable := s.post(assistant(token).with("Accept", "text/html"), request("ping", nil))
	if unreadable.refusedByProtocol(t, 400); !strings.Contains(unreadable.Body, `"id":7`) {
		t.Errorf("%s", unreadable.Body)
	}
}
