package mcp

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// A reply corrects what the SDK writes: it forbids caching, since the response is specific to one caller and moment;
// it turns plain-text refusals of the SDK into JSON-RPC errors; and it undoes the escaping of JSON for HTML.
type reply struct {
	http.ResponseWriter
	id    json.RawMessage // id of the answered message
	plain bool
}

// WriteHeader sets Cache-Control and detects plain-text refusals.
func (r *reply) WriteHeader(status int) {
	r.Header().Set("Cache-Control", "no-store")
	if status >= 400 && strings.HasPrefix(r.Header().Get("Content-Type"), "text/plain") {
		r.plain = true
		r.Header().Set("Content-Type", "application/json")
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *reply) Write(content []byte) (int, error) {
	r.Header().Set("Cache-Control", "no-store") // if WriteHeader was not called
	if !r.plain {
		if _, err := r.ResponseWriter.Write(unescapeHTML(content)); err != nil {
			return 0, err
		}
		return len(content), nil
	}
	refused := fault{id: r.id, code: jsonrpc.CodeInvalidRequest, message: strings.TrimSpace(string(content))}
	if _, err := r.ResponseWriter.Write(refused.body()); err != nil {
		return 0, err
	}
	return len(content), nil
}

// unescapeHTML returns the JSON with <, > and & in place of their six-byte escapes, which the SDK's json.Marshal
// writes. The SDK writes a response in one call, so no escape is split.
func unescapeHTML(content []byte) []byte {
	if !bytes.Contains(content, []byte(`\u00`)) {
		return content
	}
	out := make([]byte, 0, len(content))
	for {
		i := bytes.IndexByte(content, '\\')
		if i < 0 || i+1 >= len(content) {
			return append(out, content...)
		}
		out, content = append(out, content[:i]...), content[i:]
		if character, found := htmlEscapes[string(content[:min(len(content), 6)])]; found {
			out, content = append(out, character), content[6:]
			continue
		}
		out, content = append(out, content[:2]...), content[2:] // a backslash and the next byte
	}
}

var htmlEscapes = map[string]byte{`\u003c`: '<', `\u003e`: '>', `\u0026`: '&'}

// Unwrap lets http.ResponseController reach the underlying writer.
func (r *reply) Unwrap() http.ResponseWriter { return r.ResponseWriter }
