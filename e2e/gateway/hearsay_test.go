package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// claims are the headers in which a caller can claim its address, host, protocol and path.
var claims = []string{
	"X-Forwarded-For", "Forwarded", "X-Real-Ip", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port",
	"X-Forwarded-Prefix", "X-Forwarded-Server", "X_Forwarded_For", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip",
}

// The services ignore the address that a caller claims and use the address of the connection: the limit of wrong
// passwords is per account and address (contract, section 7).
func TestForwarded_ServicesSeeCallerAddress(t *testing.T) {
	each(t, func(t *testing.T, s *site, f *front) {
		here, elsewhere := s.product(t, f.oldTransport("127.0.0.31")), s.product(t, f.oldTransport("127.0.0.32"))
		user := here.Database.User(t)
		try := func(p *harness.Product, at int) int {
			person := p.Person(t, user)
			for _, name := range claims {
				value := fmt.Sprintf("203.0.113.%d", at)
				if name == "Forwarded" {
					value = "for=" + value
				}
				person.Header.Set(name, value)
			}
			return person.Submit(t, harness.Form{
				Action: p.AppURL + "/login",
				Fields: url.Values{"email": {user.Email}, "password": {"wrong"}},
			}).Status
		}
		for at := range 10 {
			if status := try(here, at); status != http.StatusBadRequest {
				t.Fatalf("wrong password %d: %d", at, status)
			}
		}
		if status := try(here, 100); status != http.StatusTooManyRequests {
			t.Errorf("the 11th wrong password with another claimed address: status %d", status)
		}
		if status := try(elsewhere, 1); status != http.StatusBadRequest {
			t.Errorf("the first wrong password from another address: status %d", status)
		}
	})
}

// The services receive only the gateway's own headers. The test's server returns the headers that it receives.
func TestForwarded_CallerHeadersAreRemoved(t *testing.T) {
	t.Parallel()
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Host", r.Host)
		_ = json.NewEncoder(w).Encode(r.Header)
	}))
	t.Cleanup(echo.Close)
	both := [2]string{hostOf(echo.URL), hostOf(echo.URL)}
	before(t, processes{both, both}, func(t *testing.T, f *front, base string) {
		transport := f.oldTransport("127.0.0.33")
		defer transport.CloseIdleConnections()
		for _, path := range []string{"/v1/account/oauth/jwks", "/v1/docs", "/mcp"} {
			sent := http.Header{"Authorization": {"Bearer kept"}, "Idempotency-Key": {"kept"}}
			for _, name := range slices.Concat(claims,
				[]string{"Traceparent", "Tracestate", "Baggage", "X-Request-Id"}) {
				sent.Set(name, "203.0.113.9")
			}
			_, body := ask(t, transport, http.MethodGet, base+path, "", sent)
			var got http.Header
			must(t, json.Unmarshal([]byte(body), &got))
			for name, values := range got {
				if strings.Contains(strings.Join(values, " "), "203.0.113.9") {
					t.Errorf("%s: %s arrives: %q", path, name, values)
				}
			}
			host := strings.TrimPrefix(base, "https://")
			for name, want := range map[string]string{
				"X-Forwarded-For":   "127.0.0.33",
				"X-Forwarded-Proto": "https",
				"X-Forwarded-Host":  host,
				"Host":              host,
				"Authorization":     "Bearer kept",
				"Idempotency-Key":   "kept",
			} {
				if values := got.Values(name); len(values) != 1 || values[0] != want {
					t.Errorf("%s: %s is %q, want %q", path, name, values, want)
				}
			}
		}
	})
}

// The gateway assigns the request id. With an id from the caller, two requests could look like one in the logs.
func TestForwarded_RequestIDIsReplaced(t *testing.T) {
	each(t, func(t *testing.T, s *site, f *front) {
		p := s.product(t, f.transport())
		const chosen = "c0ffee00-0000-4000-8000-000000000000"
		answer := p.API().With("X-Request-Id", chosen).Get(t, "/v1/account/oauth/jwks").Wants(t, http.StatusOK)
		if id := answer.Header.Get("X-Request-Id"); id == chosen || id == "" {
			t.Errorf("the request id is %q", id)
		} else {
			s.wantServed(t, map[string]string{id: account})
		}
	})
}
