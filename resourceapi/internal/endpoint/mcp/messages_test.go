package mcp

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// FuzzMessages checks that the tool of an admitted message is the tool that the SDK would call for the same bytes.
func FuzzMessages(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":"a","method":"tools/call",` +
			`"params":{"name":"list_programmes","arguments": { "limit" : 1 } }}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"whoami"}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`,
		`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"Method":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools\u002fcall","params":{"name":"whoam\u0069"}}`,
		`{}`, `[]`, `null`, "", " ", "\xef\xbb\xbf{}",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"Name":"whoami"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\ud800"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		messages, refused := readMessages(content)
		if refused != nil {
			if !json.Valid(refused.body()) || refused.message == "" {
				t.Errorf("%q: no JSON-RPC error: %s", content, refused.body())
			}
			return
		}
		if len(messages) == 0 || len(messages) > maxBatch {
			t.Fatalf("%q: %d messages", content, len(messages))
		}
		decoded, err := jsonrpc.DecodeMessage(content)
		if len(messages) > 1 || err != nil {
			return
		}
		request, isRequest := decoded.(*jsonrpc.Request)
		if !isRequest || request.Method != "tools/call" {
			return
		}
		var params map[string]json.RawMessage
		var name string
		if json.Unmarshal(request.Params, &params) != nil || json.Unmarshal(params["name"], &name) != nil {
			return
		}
		if slices.Contains([]string{"whoami", "list_programmes", "get_programme"}, name) && messages[0].tool != name {
			t.Errorf("%q: the SDK would call %q, and %q was admitted", content, name, messages[0].tool)
		}
	})
}

// FuzzOrigins checks that only listed origins and, with loopback, addresses of this machine are allowed.
func FuzzOrigins(f *testing.F) {
	for _, seed := range []string{
		"https://claude.ai", "http://localhost:1", "http://127.0.0.1", "http://[::1]", "null", "",
		"http://localhost.evil.example", "http://localhost@evil.example", "http://[::ffff:127.0.0.1]:80",
	} {
		f.Add(seed)
	}
	origins, err := ParseOrigins("https://claude.ai, loopback,,")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, origin string) {
		if origins.allow(origin) && origin != "https://claude.ai" && !IsOrigin(origin) {
			t.Errorf("%q is allowed", origin)
		}
		if closed := (Origins{}); closed.allow(origin) {
			t.Errorf("%q is allowed by an empty list", origin)
		}
	})
}

// The SDK encodes results with json.Marshal, which writes six bytes for each <, > and &.
func FuzzUnescapeHTML(f *testing.F) {
	for _, seed := range []string{"<", "a>b&c", `\u003c`, `\\u003c`, "\\", "\"<\"", "\u2028", "x\n<"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		escaped, _ := json.Marshal(map[string]string{text: text})
		var plain bytes.Buffer
		encoder := json.NewEncoder(&plain)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(map[string]string{text: text}); err != nil {
			t.Fatal(err)
		}
		if got := string(unescapeHTML(escaped)) + "\n"; got != plain.String() {
			t.Errorf("got %s, want %s", got, plain.String())
		}
	})
}
