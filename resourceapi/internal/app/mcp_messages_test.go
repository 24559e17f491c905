package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

// The newest revision has no handshake: each request names its version.
func TestRevision_NewestNeedsNoHandshake(t *testing.T) {
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
	})); a.Status != 200 || !strings.Contains(a.Body, version) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestMessages_RefusesInvalidMessages(t *testing.T) {
	t.Parallel()
	s := ownService(t)
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
	s.post(assistant(token), calling("drop_table", nil)).has(t, "-32602")
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
		}[code] || code == -32601 && !strings.Contains(a.Body, "-32601") {
			t.Errorf("%s: %d %s", rest, a.Status, a.Body)
		}
	}
}

func TestMessages_NotificationIsAccepted(t *testing.T) {
	s := newService(t)
	_, _, token := s.assistedBy(perm.ProgrammesRead)
	for _, method := range []string{
		"notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/message",
		"notifications/no/such",
	} {
		if a := s.post(assistant(token), `{"jsonrpc":"2.0","method":"`+method+`"}`); a.Status != 202 || a.Body != "" {
			t.Errorf("%s: %d %s", method, a.Status, a.Body)
		}
	}
	s.post(assistant(token), `{"jsonrpc":"2.0","method":"ping"}`).refusedByProtocol(t, 400) // a request without its id
	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"notifications/no/such"}`, request("no/such", nil),
		calling("whoami", map[string]any{}),
	} {
		s.post(assistant(token).with("Content-Type", "text/plain"), body).refusedByProtocol(t, 415)
	}
	s.post(assistant(token).with("Content-Encoding", "gzip"), "\x1f\x8b").wants(t, 400, "-32700", "Content-Encoding")
	s.post(assistant(token), `{"jsonrpc":"2.0","id":1,"result":{}}`).wants(t, 202)
}

func TestMCP_AcceptsClientsThatAcceptOnlyJSON(t *testing.T) {
	s := newService(t)
	_, _, token := s.assistedBy(perm.ProgrammesRead)
	for _, accept := range []string{
		"application/json", "application/json;q=0.9, text/plain", "Application/JSON", "application/*", "*/*", "",
	} {
		s.post(assistant(token).with("Accept", accept), calling("whoami", map[string]any{})).wants(t, 200)
	}
}

// A batch is accepted if its protocol version has batches, and each of its calls is admitted.
func TestBatch_EachCallIsAdmitted(t *testing.T) {
	s := newService(t)
	workspaceID, user, token := s.assistedBy(perm.ProgrammesRead)
	s.Programmes(workspaceID, 2)
	list := strings.Replace(calling("list_programmes", map[string]any{"limit": 1}), `"id":7`, `"id":8`, 1)
	batch := "[" + request("ping", nil) + "," + list + "]"
	old := assistant(token).with("Mcp-Protocol-Version", "2025-03-26")
	s.post(old, batch).wants(t, 200, "Programme 2").lacks(t, "Programme 1")
	s.post(assistant(token), batch).refusedByProtocol(t, 400) // a version without batches
	many := "[" + strings.TrimSuffix(strings.Repeat(request("ping", nil)+",", 11), ",") + "]"
	s.post(old, many).wants(t, 400, "-32600")
	// No part of the batch may count as answered.
	s.post(old, "["+request("no/such", nil)+","+batch[1:]).refusedByProtocol(t, 400)
	who := s.post(old, "["+strings.Replace(calling("whoami", map[string]any{}), `"id":7`, `"id":9`, 1)+","+batch[1:])
	who.wants(t, 200, workspaceID.String(), "Programme 2").lacks(t, "isError")
	s.Member(workspaceID, user)
	s.post(old, batch).expect(t, 403, "FORBIDDEN", "")
}

// Ten calls with the longest pages in one request would need hundreds of megabytes of memory.
func TestBatch_AnswersAreBounded(t *testing.T) {
	s := newService(t)
	workspaceID, _, token := s.assistedBy(perm.ProgrammesRead)
	s.Programmes(workspaceID, 200)
	s.Exec("update resource.programmes set summary = repeat('x', 5000) where {mine}")
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
			strings.Count(a.Body, "Send this call separately") < 8 || !strings.Contains(a.Body, "xxx") {
			t.Errorf(
				"%s: %d, %d bytes, %d told to come alone",
				name, a.Status, len(a.Body), strings.Count(a.Body, "Send this call separately"),
			)
		}
	}
}

func TestMCP_AllowsOnlyListedOrigins(t *testing.T) {
	s := newService(t)
	_, _, token := s.assistedBy(perm.ProgrammesRead)
	for _, origin := range []string{
		"https://claude.ai", "https://claude.com", "https://chatgpt.com", "https://vscode.dev",
		"https://app.almoner.example", "http://localhost:6274", "http://127.0.0.1", "http://[::1]:1",
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
		"https://evil.example", "null", "", "https://claude.ai.evil.example", "http://claude.ai",
		"https://claude.ai:8443", "HTTPS://CLAUDE.AI", "http://localhost.evil.example", "http://127.0.0.1.evil.example",
		"http://localhost:1/", "http://user@localhost", "file://localhost",
	} {
		for method, h := range map[string]header{
			"POST":    assistant(token),
			"GET":     assistant(token),
			"OPTIONS": {"Access-Control-Request-Method": "POST"},
		} {
			a := s.do(method, mcpPath, h.with("Origin", origin), initialize)
			a.expect(t, 403, "FORBIDDEN", "")
			a.header(t, "Access-Control-Allow-Origin", "")
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
