// Package web answers: what does every HTTP server of ours do, whatever it serves?
//
// It knows no route. Request ids, the access log, the last resort for a panic, methods, JSON, addresses behind
// proxies, and a server with time limits that drains before it stops.
package web

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
)

// JSON answers with value as JSON. Answers are about one caller at one moment, so nobody may keep them.
func JSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = NewEncoder(w).Encode(value) // a caller who has left is no error of ours
}

// EncodeJSON returns value as JSON, as NewEncoder writes it, without the line break at its end.
func EncodeJSON(value any) ([]byte, error) {
	var out bytes.Buffer
	if err := NewEncoder(&out).Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// NewEncoder returns an encoder for answers to callers of the API, in which <, > and & stand for themselves.
// encoding/json writes six bytes for each of them, for JSON within HTML; such JSON must be made by json.Marshal
// instead.
func NewEncoder(out io.Writer) *json.Encoder {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e
}

// Methods serves each method by its handler (GET serves HEAD too) and leaves every other to refuse, with Allow set
// (RFC 9110, section 15.5.6).
func Methods(handlers map[string]http.Handler, refuse http.Handler) http.Handler {
	var allowed []string
	for method := range handlers {
		allowed = append(allowed, method)
		if method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	slices.Sort(allowed)
	allow := strings.Join(allowed, ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		handler, ok := handlers[method]
		if !ok {
			w.Header().Set("Allow", allow)
			handler = refuse
		}
		handler.ServeHTTP(w, r)
	})
}
