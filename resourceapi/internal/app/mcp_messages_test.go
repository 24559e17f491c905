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
	list := map[string]any{"name": "list_programmes", "arguments": map[string]any{}, "_meta": meta}
	a := s.post(h, request("tools/call", list))
	if r := a.result(t); r.Result.IsError || strings.Count(string(r.Result.Structured), `"name"`) != 2 {
		t.Errorf("%s", a.Body)
	}
	s.post(h.with("Mcp-Method", "server/discover"), request("server/discover", map[string]any{"_meta": meta})).
		wants(t, 200, version)
}

func TestMessages_RefusesInvalidMessages(t *testing.T) {
	s := newOwn(t)
	_, _, token := s.assistedBy(perm.ProgrammesRead)
	h := assistant(token)
	for _, body := range []string{"", "{", "x", `{}{}`, "[", "\xff"} {
		s.post(h, body).refusedAs(t, 400, -32700, "null")
	}
	for _, body := range []string{
		"[]", "null", "7", `"x"`, "{}", `[1]`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"Method":"tools/call","params":{}}`,
		`{"jsonrpc":"2.0","id":1,"method\u0000":"ping"}`, `{"JSONRPC":"2.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","result":{}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami","name":"list_programmes"}}`,
	} {
		s.post(h, body).refusedByProtocol(t, 400)
	}
	for _, id := range []string{"[]", "true", "null", "9007199254740993", "1e300"} {
		s.post(h, `{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}`).refusedByProtocol(t, 400)
	}
	// A name in another case is that of another member, for the SDK as for what the gate admits.
	s.post(h, `{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/list"}`).wants(t, 200, `"result":{}`)
	s.post(h, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami","Name":"list_programmes"}}`).
		wants(t, 200, `"structuredContent":{"user":`)
	s.post(h, calling("whoami", map[string]any{"x": strings.Repeat("a", 70_000)})).
		expect(t, 413, "PAYLOAD_TOO_LARGE", "")
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", ""} {
		s.post(h.with("Content-Type", kind), initialize).refusedByProtocol(t, 415)
	}
	s.logLacks(`"level":"ERROR"`)
}

// A valid message that is refused gets an error with its id.
func TestMessages_ErrorHasIDAndReason(t *testing.T) {
	s, h := newAssistant(t)
	newest := h.with("Mcp-Protocol-Version", newestRevision)
	for code, messages := range map[int][]string{
		-32601: {
			`"no/such"`, `"Ping"`, `"notifications/initialized"`, `"resources/read","params":{"uri":"x:"}`,
		},
		-32602: {
			`"tools/call"`, `"tools/call","params":null`, `"tools/call","params":[]`, `"tools/call","params":{}`,
			`"tools/call","params":{"name":5}`, `"tools/call","params":{"name":""}`,
			`"tools/call","params":{"name":"drop_table"}`, `"tools/call","params":{"Name":"whoami"}`, `"initialize"`,
			`"initialize","params":{"protocolVersion":5}`,
			`"initialize","params":{"capabilities":5}`, `"initialize","params":{"_meta":5}`, `"ping","params":[]`,
			`"tools/list","params":"x"`, `"tools/list","params":{"cursor":5}`,
		},
	} {
		for _, rest := range messages {
			for _, id := range []string{"7", `"seven"`, "-9007199254740991"} {
				a := s.post(h, `{"jsonrpc":"2.0","id":`+id+`,"method":`+rest+`}`)
				a.Body = a.header(t, "Cache-Control", "no-store").refusedAs(t, 200, code, id).Error.Message
				a.lacks(t, "unmarshal", "mcp.", "Go ")
			}
			if a := s.post(newest, `{"jsonrpc":"2.0","id":7,"method":`+rest+`}`); code == -32601 {
				a.wants(t, 404, "-32601")
			} else {
				a.wants(t, 400)
			}
		}
	}
}

func TestMessages_NotificationIsAccepted(t *testing.T) {
	s, h := newAssistant(t)
	for _, method := range []string{
		"notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/message",
		"notifications/no/such",
	} {
		s.post(h, `{"jsonrpc":"2.0","method":"`+method+`"}`).wants(t, 202).is(t, "")
	}
	s.post(h, `{"jsonrpc":"2.0","method":"ping"}`).refusedByProtocol(t, 400) // a request without its id
	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"notifications/no/such"}`, request("no/such", nil),
		calling("whoami", map[string]any{}),
	} {
		s.post(h.with("Content-Type", "text/plain"), body).refusedByProtocol(t, 415)
	}
	s.post(h.with("Content-Encoding", "gzip"), "\x1f\x8b").wants(t, 400, "-32700", "Content-Encoding")
	s.post(h, `{"jsonrpc":"2.0","id":1,"result":{}}`).wants(t, 202)
}

func TestMCP_AcceptsClientsThatAcceptOnlyJSON(t *testing.T) {
	s, h := newAssistant(t)
	for _, accept := range []string{
		"application/json", "application/json;q=0.9, text/plain", "Application/JSON", "application/*", "*/*", "",
	} {
		s.post(h.with("Accept", accept), calling("whoami", map[string]any{})).wants(t, 200)
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
		call := calling("list_programmes", map[string]any{"limit": limit})
		return strings.Replace(call, `"id":7`, fmt.Sprintf(`"id":%d`, id), 1)
	}
	alone := s.post(old, one(1, 200)).wants(t, 200).lacks(t, "isError")
	if len(alone.Body) < 2*200*5000 {
		t.Errorf("alone: %d bytes", len(alone.Body))
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
		told := strings.Count(a.Body, "Send this call separately")
		if a.Status != 200 || len(a.Body) > len(alone.Body)+100_000 || told < 8 || !strings.Contains(a.Body, "xxx") {
			t.Errorf("%s: %d, %d bytes, %d told to come alone", name, a.Status, len(a.Body), told)
		}
	}
}

func TestMCP_AllowsOnlyListedOrigins(t *testing.T) {
	s, h := newAssistant(t)
	for _, origin := range []string{
		"https://claude.ai", "https://claude.com", "https://chatgpt.com", "https://vscode.dev",
		"https://app.almoner.example", "http://localhost:6274", "http://127.0.0.1", "http://[::1]:1",
		"https://localhost",
	} {
		for status, h := range map[int]header{200: h, 401: {}} { // readable by the page even if refused
			s.post(h.with("Origin", origin), initialize).wants(t, status).
				header(t, "Access-Control-Allow-Origin", origin).
				header(t, "Access-Control-Allow-Credentials", "").
				hasInHeader(t, "Access-Control-Expose-Headers", "WWW-Authenticate", "Mcp-Session-Id").
				hasInHeader(t, "Vary", "Origin")
		}
		s.do("OPTIONS", mcpPath, header{
			"Origin":                         origin,
			"Access-Control-Request-Method":  "POST",
			"Access-Control-Request-Headers": "authorization,content-type,mcp-protocol-version",
		}, "").wants(t, 204).
			header(t, "Access-Control-Allow-Origin", origin).
			hasInHeader(t, "Access-Control-Allow-Headers", "Authorization", "Mcp-Protocol-Version").
			hasInHeader(t, "Access-Control-Allow-Methods", "POST")
	}
	for _, origin := range []string{
		"https://evil.example", "null", "", "https://claude.ai.evil.example", "http://claude.ai",
		"https://claude.ai:8443", "HTTPS://CLAUDE.AI", "http://localhost.evil.example", "http://127.0.0.1.evil.example",
		"http://localhost:1/", "http://user@localhost", "file://localhost",
	} {
		for method, h := range map[string]header{
			"POST":    h,
			"GET":     h,
			"OPTIONS": {"Access-Control-Request-Method": "POST"},
		} {
			s.do(method, mcpPath, h.with("Origin", origin), initialize).expect(t, 403, "FORBIDDEN", "").
				header(t, "Access-Control-Allow-Origin", "")
		}
	}
	two := http.Header{"Origin": {"https://claude.ai", "https://evil.example"}, "Authorization": {h["Authorization"]}}
	s.send("POST", mcpPath, two, initialize).expect(t, 403, "FORBIDDEN", "")
}

// hasInHeader checks that a header has the pieces.
func (a answer) hasInHeader(t *testing.T, name string, pieces ...string) answer {
	t.Helper()
	values := strings.Join(a.Header.Values(name), ", ")
	for _, piece := range pieces {
		if !strings.Contains(values, piece) {
			a.fail(t, name+" with "+piece)
		}
	}
	return a
}

const newestRevision = "2026-07-28"

// rpcError is a JSON-RPC error as a client reads it.
type rpcError struct {
	ID    json.RawMessage
	Error struct {
		Code    int
		Message string
		Data    struct {
			Supported []string
			Requested string
		}
	}
}

// inRevision returns a request that names its protocol revision in _meta, as the newest one requires.
func inRevision(revision, id, method string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"` + revision +
		`","io.modelcontextprotocol/clientCapabilities":{}}}}`
}

// connectors.md, Protocol revisions: -32022 with the supported and the requested revisions, under the id of the
// request.
func TestRevision_UnknownRevisionListsSupported(t *testing.T) {
	s, h := newAssistant(t)
	want := []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", newestRevision}
	for _, revision := range []string{"1999-01-01", "2027-01-01", "v999.0.0", `"`} {
		named := h.with("Mcp-Protocol-Version", revision)
		for body, id := range map[string]string{
			request("ping", nil):                                                                 "7",
			request("tools/list", nil):                                                           "7",
			request("no/such", nil):                                                              "7",
			calling("whoami", map[string]any{}):                                                  "7",
			`{"jsonrpc":"2.0","id":"seven","method":"server/discover"}`:                          `"seven"`,
			`{"jsonrpc":"2.0","id":9,"method":"tools/call"}`:                                     "9",
			inRevision("v999.0.0", "301", "server/discover"):                                     "301",
			inRevision("v999.0.0", "302", "initialize"):                                          "302",
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`:                             "null",
			"[" + request("ping", nil) + `,{"jsonrpc":"2.0","id":8,"method":"ping"}` + "]":       "null",
			`{"jsonrpc":"2.0","id":8,"result":{}}`:                                               "8",
			"\n" + request("tools/list", map[string]any{"cursor": 5, "_meta": map[string]any{}}): "7",
		} {
			a := s.post(named, body).header(t, "Cache-Control", "no-store")
			data := a.refusedAs(t, 400, -32022, id).Error.Data
			if !slices.Equal(data.Supported, want) || data.Requested != revision {
				a.fail(t, "the supported revisions and "+revision)
			}
		}
		s.post(named, "{").wants(t, 400, "-32700") // no message
		s.post(named, "[]").wants(t, 400, "-32600")
		s.post(named, `{"id":1,"method":"ping"}`).wants(t, 400, "-32600")
	}
}

// A client that supports several revisions may set the header before it knows the server's revision.
func TestRevision_HandshakeIgnoresHeader(t *testing.T) {
	s, h := newAssistant(t)
	for _, header := range []string{"", newestRevision, "2027-01-01", "1999-01-01", "v999.0.0", "2025-03-26"} {
		for wanted, agreed := range map[string]string{
			"2025-03-26":   "2025-03-26",
			"2025-06-18":   "2025-06-18",
			"2025-11-25":   "2025-11-25",
			newestRevision: "2025-11-25",
			"2027-01-01":   "2025-11-25",
			"1999-01-01":   "2025-11-25",
		} {
			s.post(h.with("Mcp-Protocol-Version", header),
				strings.ReplaceAll(initialize, "2025-06-18", wanted)).
				wants(t, 200, `"protocolVersion":"`+agreed+`"`)
		}
	}
	newest := h.with("Mcp-Protocol-Version", newestRevision).with("Mcp-Method", "initialize")
	s.post(newest, inRevision(newestRevision, "500", "initialize")).wants(t, 404, "-32601")
}

// A method without a declared capability does not exist, in any revision.
func TestRevision_UndeclaredMethodsAreNotFound(t *testing.T) {
	s, h := newAssistant(t)
	for _, method := range []string{
		"prompts/list", "prompts/get", "resources/list", "resources/read", "resources/templates/list",
		"resources/subscribe", "completion/complete", "logging/setLevel", "subscriptions/listen", "tasks/list",
		"roots/list", "sampling/createMessage", "elicitation/create", "skills/list",
	} {
		h := h.with("Mcp-Method", method)
		for _, revision := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
			s.post(h.with("Mcp-Protocol-Version", revision), request(method, nil)).refusedAs(t, 200, -32601, "7")
		}
		s.post(h.with("Mcp-Protocol-Version", newestRevision), inRevision(newestRevision, "7", method)).
			refusedAs(t, 404, -32601, "7")
	}
}

func TestRefusal_EchoesReadableID(t *testing.T) {
	s, h := newAssistant(t)
	for body, id := range map[string]string{
		`{"id":1,"method":"ping"}`:                        "1",
		`{"jsonrpc":"1.0","id":"a","method":"ping"}`:      `"a"`,
		`{"jsonrpc":"2.0","id":3,"method":7}`:             "3",
		`{"jsonrpc":"2.0","id":4}`:                        "4",
		`{"jsonrpc":"2.0","id":5,"result":{},"error":{}}`: "5",
		`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`:      "null",
		`{"jsonrpc":"2.0","id":{},"method":"ping"}`:       "null",
		`{"id":1,"id":2,"method":"ping"}`:                 "null",
	} {
		s.post(h, body).refusedAs(t, 400, -32600, id)
	}
	s.post(h, `{"id":1`).refusedAs(t, 400, -32700, "null")
}

// F19: the answers to two requests with one id would be indistinguishable; the SDK sends only one.
func TestBatch_RefusesDuplicateIDs(t *testing.T) {
	s, h := newAssistant(t)
	old := h.with("Mcp-Protocol-Version", "2025-03-26")
	ping := func(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}` }
	for _, ids := range [][2]string{
		{"1", "1"},
		{"1", "1.0"},
		{"0", "-0"},
		{"10", "1e1"},
		{`"a"`, `"a"`},
		{`"a"`, `"\u0061"`},
	} {
		s.post(old, "["+ping(ids[0])+","+ping(ids[1])+"]").refusedByProtocol(t, http.StatusBadRequest)
	}
	for _, ids := range [][2]string{{"1", "2"}, {"1", `"1"`}, {`"a"`, `"A"`}} {
		var answers []rpcError
		const others = `{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","id":1,"result":{}}`
		a := s.post(old, "["+ping(ids[0])+","+ping(ids[1])+","+others+"]")
		a.decode(t, &answers)
		var answered []string // in any order (JSON-RPC 2.0, section 6)
		for _, answer := range answers {
			answered = append(answered, string(answer.ID))
		}
		slices.Sort(answered)
		if want := slices.Sorted(slices.Values(ids[:])); a.Status != 200 || !slices.Equal(answered, want) {
			t.Errorf("%v: %d %s", ids, a.Status, a.Body)
		}
	}
}

// refusedAs checks the code and the id of a JSON-RPC error.
func (a answer) refusedAs(t *testing.T, status, code int, id string) rpcError {
	t.Helper()
	refused := decoded[rpcError](t, a.wants(t, status))
	if refused.Error.Code != code || string(refused.ID) != id || refused.Error.Message == "" {
		a.fail(t, fmt.Sprintf("the error %d of %s", code, id))
	}
	return refused
}
