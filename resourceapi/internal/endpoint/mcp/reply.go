package mcp

import (
	"encoding/json"
	"net/http"
	"strings"
)

// A reply is what the SDK writes, with two things set right: nobody may keep it, as it is about one caller at one moment,
// and what the SDK refuses in plain text is a JSON-RPC error like every other.
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
		return r.ResponseWriter.Write(content)
	}
	refused := fault{id: r.id, code: invalidRequest, message: strings.TrimSpace(string(content))}
	if _, err := r.ResponseWriter.Write(refused.body()); err != nil {
		return 0, err
	}
	return len(content), nil
}

// Unwrap lets http.ResponseController reach the writer beneath.
func (r *reply) Unwrap() http.ResponseWriter { return r.ResponseWriter }
