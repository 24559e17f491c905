// Package fuzzkit sends fuzzed requests to a whole service in tests.
//
// A Request is text that net/http parses on its way to the handler, so that the handler gets nothing that a
// connection could not carry. Words in angle brackets stand for values that exist in one process only
// (Stock): a stored input can be run again where every identifier, code and token differs.
package fuzzkit

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
)

// A Request is a fuzzed request. Headers are lines of a name, a colon and a value.
type Request struct {
	Method, Path, Query, Headers, Body string

	From string // the client address in X-Forwarded-For
}

// Proxy is the address of the forwarding proxy. Services under test trust it, so that each request may have
// another client address.
const Proxy = "127.0.0.1"

// Read parses the request as a server does. It returns false if net/http rejects it, so that no handler sees
// it.
func (q Request) Read() (*http.Request, bool) {
	target := q.Path
	if q.Query != "" {
		target += "?" + q.Query
	}
	var text strings.Builder
	fmt.Fprintf(
		&text,
		"%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n",
		q.Method,
		oneWord(target),
		len(q.Body),
	)
	for line := range strings.Lines(q.Headers) {
		if line = strings.TrimRight(line, "\r\n"); line != "" { // an empty line would end the headers
			text.WriteString(line + "\r\n")
		}
	}
	text.WriteString("X-Forwarded-For: " + q.From + "\r\n\r\n" + q.Body)
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text.String())))
	if err != nil || !printable(r.Header) {
		return nil, false
	}
	r.RemoteAddr = Proxy + ":1"
	return r, true
}

// oneWord escapes the characters of a target that would end it. It does not change percent signs.
func oneWord(target string) string {
	var out strings.Builder
	for _, b := range []byte(target) {
		if b <= ' ' || b >= 0x7f || b == '#' {
			fmt.Fprintf(&out, "%%%02X", b)
		} else {
			out.WriteByte(b)
		}
	}
	return out.String()
}

// printable is net/http's rule for header values (RFC 9110, section 5.5).
func printable(h http.Header) bool {
	for _, values := range h {
		for _, value := range values {
			if strings.ContainsFunc(value, func(r rune) bool { return (r < ' ' && r != '\t') || r == 0x7f }) {
				return false
			}
		}
	}
	return true
}

// An Answer is a response.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Ask sends the request to handler.
func Ask(handler http.Handler, r *http.Request) Answer {
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	return Answer{recorder.Code, recorder.Header(), recorder.Body.String()}
}
