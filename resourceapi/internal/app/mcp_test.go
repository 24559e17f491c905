package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/standing"
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
		a.Header.Get("Content-Type") != "application/json" ||
		a.Header.Get("Cache-Control") != "no-store" {
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
	t.Parallel()
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
			left < 29*24*time.Hour ||
			left > 31*24*time.Hour ||
			time.Since(who.Connection.Since) > time.Hour {
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
	t.Parallel()
	s := newService(t)
	workspaceID, user, token := s.assistedBy(perm.ProgrammesRead)
	s.Programmes(workspaceID, 7)
	s.Exec(
		"update resource.programmes set status = 'active', starts_on = '2026-04-01', summary = 'Tea & <b>cake</b>' " +
			"where name in ('Programme 2', 'Programme 5', 'Programme 6')",
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
	t.Parallel()
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
		{"list_programmes", map[string]any{"query": "x"}, "takes only these arguments: limit, cursor, status, q"},
		{"list_programmes", []int{1}, "must be one JSON object"},
		{"list_programmes", "x", "must be one JSON object"},
		{
			"list_programmes",
			map[string]any{"limit": 0, "status": "open"},
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
	t.Parallel()
	s := newService(t)
	workspaceID, user, token := s.assistedBy(perm.ProgrammesRead)
	id := s.Programmes(workspaceID, 1)[0]
	pat := s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()
	for set, says := range map[string]string{
		"update account.tenant_modules set enabled = true, provisioned = false": "not set up in this workspace yet",
		"update account.tenant_modules set enabled = false":                     "not enabled",
	} {
		s.Exec(set)
		for _, credential := range []string{token, pat} {
			for _, body := range []string{
				calling("list_programmes", nil),
				calling("list_programmes", map[string]any{"q": "x"}),
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
	t.Parallel()
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
	s.post(assistant(token), request("tools/list", nil)).decode(t, &list)
	var names []string
	for _, tool := range list.Result.Tools {
		names = append(names, tool.Name)
		if tool.Title == "" || len(tool.Description) < 40 || tool.InputSchema["type"] != "object" ||
			tool.OutputSchema["type"] != "object" ||
			tool.Annotations["readOnlyHint"] != true ||
			tool.Annotations["destructiveHint"] != false ||
			tool.Annotations["openWorldHint"] != false {
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
			hello.Result.ServerInfo.Name != "almoner" ||
			hello.Result.Capabilities["tools"] == nil {
			t.Errorf("%s", a.Body)
		}
		if _, logs := hello.Result.Capabilities["logging"]; logs || a.Header.Get("Mcp-Session-Id") != "" ||
			a.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %v", a.Body, a.Header)
		}
	}
	// The server answers an unknown version with a known one (MCP, lifecycle).
	unknown := strings.ReplaceAll(initialize, "2025-06-18", "1999-01-01")
	s.post(assistant(token).with("Mcp-Protocol-Version", ""), unknown).decode(t, &hello)
	if hello.Result.ProtocolVersion != "2025-11-25" {
		t.Errorf("%+v", hello)
	}
	unreadable := s.post(assistant(token).with("Accept", "text/html"), request("ping", nil))
	if unreadable.refusedByProtocol(t, 400); !strings.Contains(unreadable.Body, `"id":7`) {
		t.Errorf("%s", unreadable.Body)
	}
}

// The newest revision has no handshake: each request names its version.
func TestRevision_NewestNeedsNoHandshake(t *testing.T) {
	t.Parallel()
	s := newService(t)
	workspaceID, _, token := s.assistedBy(perm.ProgrammesRead)
	s.Programmes(workspaceID, 2)
	const version = "2026-07-28"
	meta := map[string]any{
		"io.modelcontextprotocol/protocolVersion":    version,
		"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "test", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": map[string]any{},
	}
	h := assistant(token).with("Mcp-Protocol-Version", version).
		with("Mcp-Method", "tools/call").
		with("Mcp-Name", "list_programmes")
	a := s.post(
		h,
		request("tools/call", map[string]any{"name": "list_programmes", "arguments": map[string]any{}, "_meta": meta}),
	)
	if r := a.result(t); r.Result.IsError || strings.Count(string(r.Result.Structured), `"name"`) != 2 {
		t.Errorf("%s", a.Body)
	}
	if a := s.post(h.with("Mcp-Method", "server/discover"), request("server/discover", map[string]any{
		"_meta": meta,
	})); a.Status != 200 ||
		!strings.Contains(a.Body, version) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	// A subscription would be an endless stream.
	began := time.Now()
	a = s.post(
		h.with("Mcp-Method", "subscriptions/listen"),
		request(
			"subscriptions/listen",
			map[string]any{"_meta": meta, "notifications": map[string]any{"toolsListChanged": true}},
		),
	)
	if a.Status != 404 || !strings.Contains(a.Body, "-32601") || time.Since(began) > 5*time.Second {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestMessages_RefusesInvalidMessages(t *testing.T) {
	t.Parallel()
	s := newService(t)
	_, _, token := s.assistedBy(perm.ProgrammesRead)
	for body, code := range map[string]string{
		"":     "-32700",
		"{":    "-32700",
		"x":    "-32700",
		`{}{}`: "-32700",
		"[":    "-32700",
		"\xff": "-32700",
		"[]":   "-32600",
		"null": "-32600",
		"7":    "-32600",
		`"x"`:  "-32600",
		"{}":   "-32600",
		`[1]`:  "-32600",
		`{"jsonrpc":"1.0","id":1,"method":"ping"}`:                       "-32600",
		`{"id":1,"method":"ping"}`:                                       "-32600",
		`{"jsonrpc":"2.0","id":1,"method":7}`:                            "-32600",
		`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`: "-32600",
		`{"jsonrpc":"2.0","id":1,"Method":"tools/call","params":{}}`:     "-32600",
		`{"jsonrpc":"2.0","id":1}`:                                       "-32600",
		`{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`:                "-32600",
		`{"jsonrpc":"2.0","result":{}}`:                                  "-32600",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami","name":"list_programmes"}}`: "-32600",
	} {
		a := s.post(assistant(token), body)
		var r toolResult
		a.decode(t, &r)
		if a.Status != 400 || fmt.Sprint(r.Error.Code) != code || r.Error.Message == "" {
			t.Errorf("%q: %d %s", body, a.Status, a.Body)
		}
	}
	for _, id := range []string{"{}", "[]", "true", "null", "1.5", "9007199254740993", "1e300"} {
		s.post(assistant(token), `{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}`).refusedByProtocol(t, 400)
	}
	if a := s.post(assistant(token), calling("drop_table", nil)); !strings.Contains(a.Body, "-32602") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	s.post(assistant(token), calling("whoami", map[string]any{"x": strings.Repeat("a", 70_000)})).
		expect(t, 413, "PAYLOAD_TOO_LARGE", "")
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", ""} {
		s.post(assistant(token).with("Content-Type", kind), initialize).refusedByProtocol(t, 415)
	}
	if strings.Contains(s.log.String(), `"level":"ERROR"`) {
		t.Errorf("%s", s.log.String())
	}
}

// A valid message that is refused gets an error with its id.
func TestMessages_ErrorHasIDAndReason(t *testing.T) {
	t.Parallel()
	s := newService(t)
	_, _, token := s.assistedBy(perm.ProgrammesRead)
	newest := assistant(token).with("Mcp-Protocol-Version", "2026-07-28")
	for rest, code := range map[string]int{
		`"no/such"`:                                     -32601,
		`"tasks/list"`:                                  -32601,
		`"resources/read","params":{"uri":"x:"}`:        -32601,
		`"resources/subscribe","params":{"uri":"x:"}`:   -32601,
		`"subscriptions/listen"`:                        -32601,
		`"notifications/initialized"`:                   -32601,
		`"Ping"`:                                        -32601,
		`"tools/call"`:                                  -32602,
		`"tools/call","params":null`:                    -32602,
		`"tools/call","params":[]`:                      -32602,
		`"tools/call","params":{}`:                      -32602,
		`"tools/call","params":{"name":5}`:              -32602,
		`"tools/call","params":{"name":""}`:             -32602,
		`"tools/call","params":{"name":"drop_table"}`:   -32602,
		`"initialize"`:                                  -32602,
		`"initialize","params":{"protocolVersion":5}`:   -32602,
		`"initialize","params":{"capabilities":5}`:      -32602,
		`"initialize","params":{"_meta":5}`:             -32602,
		`"ping","params":[]`:                            -32602,
		`"tools/list","params":"x"`:                     -32602,
		`"tools/list","params":{"cursor":5}`:            -32602,
		`"logging/setLevel","params":{"level":"debug"}`: -32601,
	} {
		for _, id := range []string{"7", `"seven"`, "-9007199254740991"} {
			a := s.post(assistant(token), `{"jsonrpc":"2.0","id":`+id+`,"method":`+rest+`}`)
			var refused struct {
				ID    json.RawMessage
				Error struct {
					Code    int
					Message string
				}
			}
			a.decode(t, &refused)
			if a.Status != 200 || refused.Error.Code != code || string(refused.ID) != id ||
				a.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %d %s", rest, a.Status, a.Body)
			}
			for _, inside := range []string{"unmarshal", "mcp.", "Go "} {
				if strings.Contains(refused.Error.Message, inside) || refused.Error.Message == "" {
					t.Errorf("%s: %s", rest, a.Body)
				}
			}
		}
		if a := s.post(newest, `{"jsonrpc":"2.0","id":7,"method":`+rest+`}`); a.Status != map[int]int{
			-32601: 404,
			-32602: 400,
		}[code] ||
			code == -32601 && !strings.Contains(a.Body, "-32601") {
			t.Errorf("%s: %d %s", rest, a.Status, a.Body)
		}
	}
}

func TestMessages_NotificationIsAccepted(t *testing.T) {
	t.Parallel()
	s := newService(t)
	_, _, token := s.assistedBy(perm.ProgrammesRead)
	for _, method := range []string{
		"notifications/initialized",
		"notifications/cancelled",
		"notifications/progress",
		"notifications/message",
		"notifications/no/such",
	} {
		if a := s.post(assistant(token), `{"jsonrpc":"2.0","method":"`+method+`"}`); a.Status != 202 || a.Body != "" {
			t.Errorf("%s: %d %s", method, a.Status, a.Body)
		}
	}
	s.post(assistant(token), `{"jsonrpc":"2.0","method":"ping"}`).refusedByProtocol(t, 400) // a request without its id
	for name, h := range map[string]header{
		"1999-01-01": assistant(token).with("Mcp-Protocol-Version", "1999-01-01"),
		"zzz":        assistant(token).with("Mcp-Protocol-Version", "zzz"),
	} {
		for _, body := range []string{
			`{"jsonrpc":"2.0","method":"notifications/no/such"}`,
			request("no/such", nil),
			request("ping", nil),
			calling("whoami", map[string]any{}),
		} {
			if a := s.post(h, body); a.Status != 400 || !strings.Contains(a.Body, "2026-07-28") {
				t.Errorf("%s: %s: %d %s", name, body, a.Status, a.Body)
			}
		}
	}
	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"notifications/no/such"}`,
		request("no/such", nil),
		calling("whoami", map[string]any{}),
	} {
		s.post(assistant(token).with("Content-Type", "text/plain"), body).refusedByProtocol(t, 415)
	}
	if a := s.post(assistant(token).with("Content-Encoding", "gzip"), "\x1f\x8b"); a.Status != 400 ||
		!strings.Contains(a.Body, "-32700") ||
		!strings.Contains(a.Body, "Content-Encoding") {
		t.Errorf("encoded: %d %s", a.Status, a.Body)
	}
	if a := s.post(assistant(token), `{"jsonrpc":"2.0","id":1,"result":{}}`); a.Status != 202 {
		t.Errorf("an answer: %d %s", a.Status, a.Body)
	}
}

func TestMCP_AcceptsClientsThatAcceptOnlyJSON(t *testing.T) {
	t.Parallel()
	s := newService(t)
	_, _, token := s.assistedBy(perm.ProgrammesRead)
	for _, accept := range []string{
		"application/json",
		"application/json;q=0.9, text/plain",
		"Application/JSON",
		"application/*",
		"*/*",
		"",
	} {
		if a := s.post(assistant(token).with("Accept", accept), calling("whoami", map[string]any{})); a.Status != 200 {
			t.Errorf("%q: %d %s", accept, a.Status, a.Body)
		}
	}
}

// A batch is accepted if its protocol version has batches, and each of its calls is admitted.
func TestBatch_EachCallIsAdmitted(t *testing.T) {
	t.Parallel()
	s := newService(t)
	workspaceID, user, token := s.assistedBy(perm.ProgrammesRead)
	s.Programmes(workspaceID, 2)
	list := strings.Replace(calling("list_programmes", map[string]any{"limit": 1}), `"id":7`, `"id":8`, 1)
	batch := "[" + request("ping", nil) + "," + list + "]"
	old := assistant(token).with("Mcp-Protocol-Version", "2025-03-26")
	if a := s.post(old, batch); a.Status != 200 || !strings.Contains(a.Body, "Programme 2") ||
		strings.Contains(a.Body, "Programme 1") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	s.post(assistant(token), batch).refusedByProtocol(t, 400) // a version without batches
	many := "[" + strings.TrimSuffix(strings.Repeat(request("ping", nil)+",", 11), ",") + "]"
	if a := s.post(old, many); a.Status != 400 || !strings.Contains(a.Body, "-32600") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	// No part of the batch may count as answered.
	s.post(old, "["+request("no/such", nil)+","+batch[1:]).refusedByProtocol(t, 400)
	who := s.post(old, "["+strings.Replace(calling("whoami", map[string]any{}), `"id":7`, `"id":9`, 1)+","+batch[1:])
	if who.Status != 200 || !strings.Contains(who.Body, workspaceID.String()) ||
		strings.Contains(who.Body, "isError") ||
		!strings.Contains(who.Body, "Programme 2") {
		t.Errorf("%d %s", who.Status, who.Body)
	}
	s.Member(workspaceID, user)
	s.post(old, batch).expect(t, 403, "FORBIDDEN", "")
}

// The longest pages of ten calls in one request would take hundreds of megabytes while they are written.
func TestBatch_AnswersAreBounded(t *testing.T) {
	t.Parallel()
	s := newService(t)
	workspaceID, _, token := s.assistedBy(perm.ProgrammesRead)
	s.Programmes(workspaceID, 200)
	s.Exec("update resource.programmes set summary = repeat('x', 5000)")
	old := assistant(token).with("Mcp-Protocol-Version", "2025-03-26")
	one := func(id int, limit int) string {
		return strings.Replace(
			calling("list_programmes", map[string]any{"limit": limit}),
			`"id":7`,
			fmt.Sprintf(`"id":%d`, id),
			1,
		)
	}
	alone := s.post(old, one(1, 200))
	if alone.Status != 200 || strings.Contains(alone.Body, "isError") || len(alone.Body) < 2*200*5000 {
		t.Errorf("alone: %d, %d bytes", alone.Status, len(alone.Body))
	}
	for name, limit := range map[string]func(int) int{
		"each another": func(i int) int { return 200 - i },
		"all alike":    func(int) int { return 200 },
	} {
		messages := []string{one(99, 1)}
		for i := range 9 {
			messages = append(messages, one(i, limit(i)))
		}
		a := s.post(old, "["+strings.Join(messages, ",")+"]")
		if a.Status != 200 || len(a.Body) > len(alone.Body)+100_000 ||
			strings.Count(a.Body, "Send this call separately") < 8 ||
			!strings.Contains(a.Body, "xxx") {
			t.Errorf(
				"%s: %d, %d bytes, %d told to come alone",
				name, a.Status, len(a.Body), strings.Count(a.Body, "Send this call separately"),
			)
		}
	}
}

func TestMCP_AllowsOnlyListedOrigins(t *testing.T) {
	t.Parallel()
	s := newService(t)
	_, _, token := s.assistedBy(perm.ProgrammesRead)
	for _, origin := range []string{
		"https://claude.ai",
		"https://claude.com",
		"https://chatgpt.com",
		"https://vscode.dev",
		"https://app.almoner.example",
		"http://localhost:6274",
		"http://127.0.0.1",
		"http://[::1]:1",
		"https://localhost",
	} {
		for _, h := range []header{assistant(token), {}} { // readable by the page even if refused
			a := s.post(h.with("Origin", origin), initialize)
			exposed := a.Header.Get("Access-Control-Expose-Headers")
			if a.Status == 403 || a.Header.Get("Access-Control-Allow-Origin") != origin ||
				!strings.Contains(exposed, "WWW-Authenticate") || !strings.Contains(exposed, "Mcp-Session-Id") ||
				!slices.Contains(a.Header.Values("Vary"), "Origin") ||
				a.Header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s: %d %v", origin, a.Status, a.Header)
			}
		}
		a := s.do(
			"OPTIONS",
			mcpPath,
			header{
				"Origin":                         origin,
				"Access-Control-Request-Method":  "POST",
				"Access-Control-Request-Headers": "authorization,content-type,mcp-protocol-version",
			},
			"",
		)
		if a.Status != 204 || !strings.Contains(a.Header.Get("Access-Control-Allow-Headers"), "Authorization") ||
			!strings.Contains(a.Header.Get("Access-Control-Allow-Headers"), "Mcp-Protocol-Version") ||
			!strings.Contains(a.Header.Get("Access-Control-Allow-Methods"), "POST") ||
			a.Header.Get("Access-Control-Allow-Origin") != origin {
			t.Errorf("%s: %d %v", origin, a.Status, a.Header)
		}
	}
	for _, origin := range []string{
		"https://evil.example",
		"null",
		"",
		"https://claude.ai.evil.example",
		"http://claude.ai",
		"https://claude.ai:8443",
		"HTTPS://CLAUDE.AI",
		"http://localhost.evil.example",
		"http://127.0.0.1.evil.example",
		"http://localhost:1/",
		"http://user@localhost",
		"file://localhost",
	} {
		for method, h := range map[string]header{
			"POST":    assistant(token),
			"GET":     assistant(token),
			"OPTIONS": {"Access-Control-Request-Method": "POST"},
		} {
			a := s.do(method, mcpPath, h.with("Origin", origin), initialize)
			a.expect(t, 403, "FORBIDDEN", "")
			if a.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s may read the response", origin)
			}
		}
	}
	a := s.send(
		"POST",
		mcpPath,
		http.Header{"Origin": {"https://claude.ai", "https://evil.example"}, "Authorization": {"Bearer " + token}},
		initialize,
	)
	a.expect(t, 403, "FORBIDDEN", "")
}
