package app

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

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
	s := newService(t)
	_, _, token := s.assistedBy(perm.ProgrammesRead)
	want := []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", newestRevision}
	for _, revision := range []string{"1999-01-01", "2027-01-01", "v999.0.0", `"`, "2026-07-28 "} {
		named := assistant(token).with("Mcp-Protocol-Version", revision)
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
			requested := strings.TrimSpace(revision) // as HTTP trims it
			if requested == newestRevision {
				break
			}
			a := s.post(named, body)
			var refused rpcError
			a.decode(t, &refused)
			if a.Status != 400 || refused.Error.Code != -32022 || string(refused.ID) != id ||
				!slices.Equal(refused.Error.Data.Supported, want) || refused.Error.Data.Requested != requested ||
				a.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%q %s: %d %s", revision, body, a.Status, a.Body)
			}
		}
		// bodies that are not a message
		for body, code := range map[string]int{"{": -32700, "[]": -32600, `{"id":1,"method":"ping"}`: -32600} {
			if strings.TrimSpace(revision) == newestRevision {
				break
			}
			var refused rpcError
			a := s.post(named, body)
			a.decode(t, &refused)
			if a.Status != 400 || refused.Error.Code != code {
				t.Errorf("%q %s: %d %s", revision, body, a.Status, a.Body)
			}
		}
	}
}

// A client that supports several revisions may set the header before it knows the server's revision.
func TestRevision_HandshakeIgnoresHeader(t *testing.T) {
	s := newService(t)
	_, _, token := s.assistedBy(perm.ProgrammesRead)
	for _, header := range []string{"", newestRevision, "2027-01-01", "1999-01-01", "v999.0.0", "2025-03-26"} {
		for wanted, agreed := range map[string]string{
			"2025-06-18":   "2025-06-18",
			newestRevision: "2025-11-25",
			"2027-01-01":   "2025-11-25",
			"1999-01-01":   "2025-11-25",
		} {
			var hello struct {
				Result struct{ ProtocolVersion string }
			}
			a := s.post(
				assistant(token).with("Mcp-Protocol-Version", header),
				strings.ReplaceAll(initialize, "2025-06-18", wanted),
			)
			a.decode(t, &hello)
			if a.Status != 200 || hello.Result.ProtocolVersion != agreed {
				t.Errorf("header %q, wants %s: %d %s", header, wanted, a.Status, a.Body)
			}
		}
	}
	newest := assistant(token).with("Mcp-Protocol-Version", newestRevision).with("Mcp-Method", "initialize")
	s.post(newest, inRevision(newestRevision, "500", "initialize")).wants(t, 404, "-32601")
}

// A method without a declared capability does not exist, in any revision.
func TestRevision_UndeclaredMethodsAreNotFound(t *testing.T) {
	s := newService(t)
	_, _, token := s.assistedBy(perm.ProgrammesRead)
	for _, method := range []string{
		"prompts/list", "prompts/get", "resources/list", "resources/read", "resources/templates/list",
		"resources/subscribe", "completion/complete", "logging/setLevel", "subscriptions/listen", "tasks/list",
		"roots/list", "sampling/createMessage", "elicitation/create", "skills/list",
	} {
		for revision, status := range map[string]int{
			"2025-03-26":   200,
			"2025-06-18":   200,
			"2025-11-25":   200,
			newestRevision: 404,
		} {
			body := request(method, nil)
			if revision == newestRevision {
				body = inRevision(revision, "7", method)
			}
			var refused rpcError
			a := s.post(assistant(token).with("Mcp-Protocol-Version", revision).with("Mcp-Method", method), body)
			a.decode(t, &refused)
			if a.Status != status || refused.Error.Code != -32601 || string(refused.ID) != "7" {
				t.Errorf("%s in %s: %d %s", method, revision, a.Status, a.Body)
			}
		}
	}
}

func TestRefusal_EchoesReadableID(t *testing.T) {
	s := newService(t)
	_, _, token := s.assistedBy(perm.ProgrammesRead)
	for body, id := range map[string]string{
		`{"id":1,"method":"ping"}`:                        "1",
		`{"jsonrpc":"1.0","id":"a","method":"ping"}`:      `"a"`,
		`{"jsonrpc":"2.0","id":3,"method":7}`:             "3",
		`{"jsonrpc":"2.0","id":4}`:                        "4",
		`{"jsonrpc":"2.0","id":5,"result":{},"error":{}}`: "5",
		`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`:      "null",
		`{"jsonrpc":"2.0","id":{},"method":"ping"}`:       "null",
		`{"id":1,"id":2,"method":"ping"}`:                 "null",
		`{"id":1`:                                         "null",
	} {
		var refused rpcError
		a := s.post(assistant(token), body)
		a.decode(t, &refused)
		if a.Status != 400 || string(refused.ID) != id || refused.Error.Code != -32600 && refused.Error.Code != -32700 {
			t.Errorf("%s: %d %s", body, a.Status, a.Body)
		}
	}
}

// F19: the answers to two requests with one id would be indistinguishable; the SDK sends only one.
func TestBatch_RefusesDuplicateIDs(t *testing.T) {
	s := newService(t)
	_, _, token := s.assistedBy(perm.ProgrammesRead)
	old := assistant(token).with("Mcp-Protocol-Version", "2025-03-26")
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
