package mcp

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
)

// A reply is what the SDK writes, with three things set right: nobody may keep it, as it is about one caller at one
// moment; what the SDK refuses in plain text is a JSON-RPC error like every other; and the JSON is not escaped for
// HTML.
type reply struct {
	http.ResponseWriter
	id    json.RawMessage // of the message that is answered
	plain bool
}

// WriteHeader looks at what kind of answer it is going to be.
func (r *reply) WriteHeader(status int) {
	r.Header().Set("Cache-Control", "no-store")
	if status >= 400 && strings.HasPrefix(r.Header().Get("Content-Type"), "text/plain") {
		r.plain = true
		r.Header().Set("Content-Type", "application/json")
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *reply) Write(content []byte) (int, error) {
	r.Header().Set("Cache-Control", "no-store") // where there was no WriteHeader
	if !r.plain {
		if _, err := r.ResponseWriter.Write(unescapeHTML(content)); err != nil {
			return 0, err
		}
		return len(content), nil
	}
	refused := fault{id: r.id, code: invalidRequest, message: strings.TrimSpace(string(content))}
	if _, err := r.ResponseWriter.Write(refused.body()); err != nil {
		return 0, err
	}
	return len(content), nil
}

// unescapeHTML returns the JSON with <, > and & in place of the six bytes that json.Marshal, which the SDK uses for
// results, writes for each of them. The SDK writes an answer in one piece, so that no escape is cut in two.
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
		out, content = append(out, content[:2]...), content[2:] // a backslash, and what it escapes or begins
	}
}

var htmlEscapes = map[string]byte{`\u003c`: '<', `\u003e`: '>', `\u0026`: '&'}

// Unwrap lets http.ResponseController reach the writer beneath.
func (r *reply) Unwrap() http.ResponseWriter { return r.ResponseWriter }
