// Package web provides what every HTTP server of Almoner needs, independent of its routes.
//
// It has request ids, the access log, the response to a panic, methods, JSON, addresses behind proxies, and a
// server with time limits that drains before it stops.
package web

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
)

// JSON writes value as a JSON response. Responses are for one caller at one moment, so they must not be
// cached.
func JSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = NewEncoder(w).Encode(value) // an error means that the caller has left
}

// EncodeJSON returns value as JSON in the format of NewEncoder, without the trailing line break.
func EncodeJSON(value any) ([]byte, error) {
	var out bytes.Buffer
	if err := NewEncoder(&out).Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// NewEncoder returns an encoder for API responses that does not escape <, > and &. encoding/json escapes them
// with six bytes each for JSON within HTML; for such JSON use json.Marshal instead.
func NewEncoder(out io.Writer) *json.Encoder {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e
}

// Methods calls the handler of the request's method (GET also serves HEAD). For other methods it sets Allow
// and calls refuse (RFC 9110, section 15.5.6).
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
