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

// claims are the headers in which a caller may say where it is, how it got here and what it belongs to.
var claims = []string{
	"X-Forwarded-For",
	"Forwarded",
	"X-Real-Ip",
	"X-Forwarded-Host",
	"X-Forwarded-Proto",
	"X-Forwarded-Port",
	"X-Forwarded-Prefix",
	"X-Forwarded-Server",
	"X_Forwarded_For",
	"X-Client-Ip",
	"True-Client-Ip",
	"Cf-Connecting-Ip",
}

// What a caller says about its address counts for nothing, and the address that the connection is from does: the limit
// of wrong passwords is for one account from one address (contract, section 7).
func TestTheServicesSeeWhereCallersAre(t *testing.T) {
	each(t, func(t *testing.T, s *site, f *front) {
		here, elsewhere := s.product(t, f.oldTransport("127.0.0.31")), s.product(t, f.oldTransport("127.0.0.32"))
		user := here.World.User(t)
		try := func(p *harness.Product, at int) int {
			visitor := p.Person(t, user)
			for _, name := range claims {
				value := fmt.Sprintf("203.0.113.%d", at)
				if name == "Forwarded" {
					value = "for=" + value
				}
				visitor.Header.Set(name, value)
			}
			return visitor.Submit(
				t,
				harness.Form{
					Action: p.AppURL + "/login",
					Fields: url.Values{"email": {user.Email}, "password": {"wrong"}},
				},
			).Status
		}
		for at := range 10 {
			if status := try(here, at); status != http.StatusBadRequest {
				t.Fatalf("wrong password %d: %d", at, status)
			}
		}
		if status := try(here, 100); status != http.StatusTooManyRequests {
			t.Errorf("the 11th wrong password, from one more address that the caller chose: %d", status)
		}
		if status := try(elsewhere, 1); status != http.StatusBadRequest {
			t.Errorf("the first wrong password from another address: %d", status)
		}
	})
}

// What arrives is what the gateway says itself: a server of the test's own hands back the headers that it was sent.
func TestNothingThatCallersClaimArrives(t *testing.T) {
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
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
			must(t, err)
			for _, name := range slices.Concat(claims, []string{
				"Traceparent",
				"Tracestate",
				"Baggage",
				"X-Request-Id",
			}) {
				request.Header.Set(name, "203.0.113.9")
			}
			request.Header.Set("Authorization", "Bearer kept")
			request.Header.Set("Idempotency-Key", "kept")
			response, err := transport.RoundTrip(request)
			must(t, err)
			var got http.Header
			err = json.NewDecoder(response.Body).Decode(&got)
			_ = response.Body.Close()
			must(t, err)
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

// The gateway gives each request its id: a caller's own would make two requests look like one in the logs.
func TestCallersDoNotChooseTheirRequestID(t *testing.T) {
	each(t, func(t *testing.T, s *site, f *front) {
		p := s.product(t, f.transport())
		const chosen = "c0ffee00-0000-4000-8000-000000000000"
		answer := p.API().With("X-Request-Id", chosen).Get(t, "/v1/account/oauth/jwks").Wants(t, http.StatusOK)
		if id := answer.Header.Get("X-Request-Id"); id == chosen || id == "" {
			t.Errorf("the id is %q", id)
		} else {
			s.wantServed(t, map[string]string{id: account})
		}
	})
}
