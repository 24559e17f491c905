package apitest

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// Wants requires a status and, of an error, its code: in the shape of its path (contract, section 5), with a message,
// and not to be cached. An error of the gateway has its message in place of a code. A 503 says when to come back.
func (s *Server) Wants(what string, a Answer, status int, code string) {
	s.t.Helper()
	if got := s.codeOf(a); a.Status != status || got != code {
		s.t.Errorf("%s: %d %q, want %d %q\n%s", what, a.Status, got, status, code, s.Explain(a))
		return
	}
	if code != "" && a.Header.Get("Cache-Control") != "no-store" {
		s.t.Errorf("%s: Cache-Control is %q\n%s", what, a.Header.Get("Cache-Control"), s.Explain(a))
	}
	if status == http.StatusServiceUnavailable && a.Header.Get("Retry-After") == "" {
		s.t.Errorf("%s: no Retry-After\n%s", what, s.Explain(a))
	}
}

// codeOf returns the code of an error in the shape of its path, or "" without a body or with a page. Those of the
// account API that are not flat are the gateway's, what is forbidden and too many requests.
func (s *Server) codeOf(a Answer) string {
	found, _ := s.sent.Load(a.Header.Get(requestID))
	sent, _ := found.(sentRequest)
	ofTenant := sent.Request != nil && strings.HasPrefix(sent.URL.Path, "/v1/account/tenants/")
	switch {
	case a.IsFlat():
		return a.Text("error")
	case ofTenant && a.IsGateway() && a.Text("message") == http.StatusText(a.Status):
		return a.Text("message")
	case ofTenant && a.Code() != "" && (a.Status == http.StatusForbidden || a.Status == http.StatusTooManyRequests):
		return a.Code()
	case a.Status >= http.StatusBadRequest && a.Body != "" && !a.IsPage():
		return "of another shape"
	}
	return ""
}

// WantsMembers requires these members of a JSON object, among others. One that is nil must be absent.
func (s *Server) WantsMembers(what string, a Answer, want map[string]any) {
	s.t.Helper()
	got := a.Object()
	for name, value := range want {
		if _, there := got[name]; !reflect.DeepEqual(got[name], value) || there != (value != nil) {
			s.t.Errorf("%s: %s is %v (present: %t), want %v\n%s", what, name, got[name], there, value, s.Explain(a))
		}
	}
}

// WantsAll requires exactly these members of a JSON object, in a response of this status that is not cached.
func (s *Server) WantsAll(what string, a Answer, status int, want map[string]any) {
	s.t.Helper()
	s.Wants(what, a, status, "")
	s.WantsHeader(what, a, "Cache-Control", "no-store")
	s.WantsMembers(what, a, want)
	s.Equal(what+": number of members", len(a.Object()), len(want))
}

// WantsHeader requires the value of a header, or "" if there must be none.
func (s *Server) WantsHeader(what string, a Answer, name, value string) {
	s.t.Helper()
	if got := a.Header.Get(name); got != value {
		s.t.Errorf("%s: %s is %q, want %q\n%s", what, name, got, value, s.Explain(a))
	}
}

// Equal requires a value.
func (s *Server) Equal(what string, got, want any) {
	s.t.Helper()
	if !reflect.DeepEqual(got, want) {
		s.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// Contains requires words in a text.
func (s *Server) Contains(what, text string, words ...string) {
	s.t.Helper()
	for _, one := range words {
		if one == "" || !strings.Contains(text, one) {
			s.t.Errorf("%s: %q lacks %q", what, redact(text), one)
		}
	}
}

// WantsRows requires a number of rows. from is what follows "select count(*) from".
func (s *Server) WantsRows(what string, want int, from string, args ...any) {
	s.t.Helper()
	if got := s.Count("select count(*) from "+from, args...); got != want {
		s.t.Errorf("%s: %d rows, want %d\n%s %v", what, got, want, from, args)
	}
}

// WantsGrant requires the state of a grant in Postgres, and the reason if it is revoked.
func (s *Server) WantsGrant(what string, g grant.Grant, state grant.State, reason grant.Reason) {
	s.t.Helper()
	if found := s.Stored(g); found.State != state || found.Reason != reason {
		s.t.Errorf("%s: the grant is %s (%s), want %s (%s)", what, found.State, found.Reason, state, reason)
	}
}

const requestID = "X-Request-Id"

type sentRequest struct {
	*http.Request
	body string
}

// Explain returns the request of an answer, the answer, what the service logged meanwhile and how to repeat the test,
// without secrets.
func (s *Server) Explain(a Answer) string {
	var out strings.Builder
	id := cmp.Or(a.Header.Get(requestID), "no request id")
	if found, ok := s.sent.Load(id); ok {
		sent := found.(sentRequest)
		fmt.Fprintf(&out, "sent: %s %s %v %.1000s\n", sent.Method, sent.URL.RequestURI(), sent.Header, sent.body)
	}
	fmt.Fprintf(&out, "got: %d %v %.1000s\n", a.Status, a.Header, strings.TrimSpace(a.Body))
	logged := slices.Collect(strings.Lines(s.Log.String()))
	logged = slices.DeleteFunc(logged, func(line string) bool { return !strings.Contains(line, id) })
	out.WriteString(strings.Join(logged, ""))
	folder, _ := os.Getwd()
	_, folder, _ = strings.Cut(folder, "/authserver/")
	fmt.Fprintf(&out, "repeat: go test ./authserver/%s -run '^%s$'", folder, strings.ReplaceAll(s.t.Name(), "/", "$/^"))
	return redact(out.String())
}

// A watchedLog is the log of a service, which must not contain secrets.
type watchedLog struct {
	*testkit.Log
	leak atomic.Pointer[string]
}

// leaked matches whole credentials and tokens, and what tests send as a secret, a verifier or an Idempotency-Key. Tests
// also send short credentials that are none.
var leaked = regexp.MustCompile(`(?:alm_(?:pat|cs|ac|rt|inv)|whsec)_[\w-]{16}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]|` +
	WrongSecret + `|` + Verifier + `|` + IdempotencyKey)

func (l *watchedLog) Write(line []byte) (int, error) {
	if leaked.Match(line) {
		l.leak.Store(new(redact(string(line))))
	}
	return l.Log.Write(line)
}

// lookForSecrets fails the test if the service has logged a secret by its end.
func (s *Server) lookForSecrets() {
	if line := s.watched.leak.Swap(nil); line != nil {
		s.t.Errorf("a secret is in the log: %s", *line)
	}
}

// secret matches credentials, tokens and what a header or a form sends as one.
var secret = regexp.MustCompile(`(alm_[a-z]+_|eyJ|Basic |Bearer |assertion=|verifier=|token=)[\w.~+/%=-]+`)

func redact(text string) string { return secret.ReplaceAllString(text, "$1…") }
