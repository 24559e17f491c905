// Package fuzzkit sends fuzzed requests to a whole service in tests.
//
// A Request is text that net/http parses on its way to the handler, so that the handler gets nothing that a
// connection could not carry. Words in angle brackets stand for values that exist in one process only
// (Stock): a stored input can be run again where every identifier, code and token differs.
package fuzzkit

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
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
	fmt.Fprintf(&text, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n", q.Method, oneWord(target),
		len(q.Body))
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

// Outside wraps a testing.TB so that fuzz inputs can use what was made for the fuzz test: testing.F itself
// does not allow that. A failure panics.
func Outside(t testing.TB) testing.TB { return outside{t} }

type outside struct{ testing.TB }

func (outside) Context() context.Context          { return context.Background() }
func (outside) Helper()                           {}
func (outside) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (outside) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Addresses generates client addresses, a new one for each request, so that rate limits do not affect other
// inputs.
type Addresses struct{ last uint32 }

// Next returns the next address.
func (a *Addresses) Next() string {
	a.last++
	return fmt.Sprintf("10.%d.%d.%d", byte(a.last>>16), byte(a.last>>8), byte(a.last))
}

// Object returns the body as a JSON object, or nil if it is not one or has another content type.
func (a Answer) Object() map[string]any {
	var out map[string]any
	if a.Header.Get("Content-Type") != "application/json" || json.Unmarshal([]byte(a.Body), &out) != nil {
		return nil
	}
	return out
}

// Text returns a string member of the body, or "".
func (a Answer) Text(name string) string {
	text, _ := a.Object()[name].(string)
	return text
}

// IsFlat reports whether the body is {"error","error_description"}, the shape of OAuth errors (spec 7.1).
func (a Answer) IsFlat() bool {
	return a.Text("error") != "" && a.Text("error_description") != "" && len(a.Object()) == 2
}

// IsGateway reports whether the body is {"message"}.
func (a Answer) IsGateway() bool { return a.Text("message") != "" && len(a.Object()) == 1 }

// Code returns error.code of {"error":{"code","message"}}, which may also have fields, or "" for another
// shape.
func (a Answer) Code() string {
	inner, _ := a.Object()["error"].(map[string]any)
	code, _ := inner["code"].(string)
	message, _ := inner["message"].(string)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(inner)), func(name string) bool { return name == "fields" })
	if message == "" || len(a.Object()) != 1 || !slices.Equal(names, []string{"code", "message"}) {
		return ""
	}
	return code
}

// IsPage reports whether the body is an HTML page.
func (a Answer) IsPage() bool {
	return strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") && strings.Contains(a.Body, "</html>")
}

// Refusal returns the beginning of a refusal's body for test messages, or "" for a success, which may contain
// a credential.
func (a Answer) Refusal() string {
	if a.Status < http.StatusBadRequest {
		return ""
	}
	return a.Body[:min(len(a.Body), 300)]
}

// Placeholders create the values of the words in an input, such as <pat>. A value is created when an input contains its
// word, so that each input has its own values.
type Placeholders struct {
	Public map[string]func() string // identifiers, allowed anywhere
	Secret map[string]func() string // credentials, which no response or log may contain
}

// Values holds the values of one input. Each occurrence of a word has the same value.
type Values struct {
	stock   Placeholders
	made    map[string]string
	secrets []string
}

// NewValues returns empty Values for the next input.
func (p Placeholders) NewValues() *Values { return &Values{stock: p, made: map[string]string{}} }

// Fill replaces the words in text with their values.
func (v *Values) Fill(text string) string {
	for word := range v.stock.Secret {
		if strings.Contains(text, "<"+word+">") && v.made[word] == "" {
			v.made[word] = v.stock.Secret[word]()
			v.secrets = append(v.secrets, v.made[word])
		}
	}
	text = v.FillPublic(text)
	for word := range v.stock.Secret {
		text = strings.ReplaceAll(text, "<"+word+">", v.made[word])
	}
	return text
}

// FillPublic is Fill without secrets, for text that is logged, such as addresses.
func (v *Values) FillPublic(text string) string {
	for word, make := range v.stock.Public {
		if strings.Contains(text, "<"+word+">") && v.made[word] == "" {
			v.made[word] = make()
		}
		text = strings.ReplaceAll(text, "<"+word+">", v.made[word])
	}
	return text
}

// Secrets returns the secrets that were used so far.
func (v *Values) Secrets() []string { return slices.Clone(v.secrets) }

// Repeats reports whether a text contains one of the secrets.
func Repeats(text string, secrets []string) bool {
	return slices.ContainsFunc(secrets, func(secret string) bool { return strings.Contains(text, secret) })
}
