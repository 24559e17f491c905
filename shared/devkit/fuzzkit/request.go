// Package fuzzkit answers: how does a request that a fuzz test made up get to a whole service?
//
// For tests alone. A Request is text, which net/http itself reads on its way to the handler, so that nothing gets there
// that no connection could bring. Words in angle brackets stand in it for what there is in one process alone (Stock):
// an input is kept, and tried again where every identifier, code and token is another.
package fuzzkit

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
)

// A Request is what a stranger sends. Headers are lines, each a name, a colon and a value.
type Request struct {
	Method, Path, Query, Headers, Body string

	From string // the address, as the proxy before the service tells it
}

// Proxy is the address of whoever hands requests on: services under test trust it, so that each request may come from
// elsewhere.
const Proxy = "127.0.0.1"

// Read reads the request as a connection's other end does. false: net/http answers it by itself, and no handler sees
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
		if line = strings.TrimRight(line, "\r\n"); line != "" { // an empty line would be the end of them
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

// oneWord spells a target without what would end it; percent signs stay as they are, right or wrong.
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

// printable is net/http's own rule for the values of headers (RFC 9110, section 5.5).
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

// An Answer is what came back.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Ask lets handler answer.
func Ask(handler http.Handler, r *http.Request) Answer {
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	return Answer{recorder.Code, recorder.Header(), recorder.Body.String()}
}
