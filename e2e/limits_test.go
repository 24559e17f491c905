package e2e

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// A client that presents the same dead token again and again is throttled. This does not affect the other users of
// the client, callers who guess tokens, or the end of the grant. Guesses are throttled too, which
// authserver/internal/endpoint/protocol/token tests: it takes 6,000.
func TestRateLimit_ThrottlesOnlyDeadToken(t *testing.T) {
	p, ws := inWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	owner := p.Person(t, ws.Owner)
	dead := connector.Connect(t, owner)
	alive := connector.Connect(t, p.Person(t, ws.Member(t, harness.ReadProgrammes)))
	connector.Revoke(t, dead.RefreshToken).Wants(t, http.StatusOK)
	for _, path := range []string{harness.TokenPath, "/token"} {
		var throttled atomic.Bool
		harness.Concurrently(4, func(int) harness.Answer {
			for range 1200 {
				answer := p.API().Form(t, path, connector.RefreshForm(dead.RefreshToken))
				if answer.Status == http.StatusTooManyRequests {
					answer.WantsFlat(t, http.StatusTooManyRequests, "rate_limited")
					if seconds := answer.Header.Get("Retry-After"); seconds == "" || seconds == "0" {
						t.Errorf("429 without Retry-After:\n%s", answer)
					}
					throttled.Store(true)
				} else {
					answer.WantsFlat(t, http.StatusBadRequest, "invalid_grant")
				}
				if throttled.Load() {
					break
				}
			}
			return harness.Answer{}
		})
		if !throttled.Load() {
			t.Errorf("%s: no 429 after 4,800 requests with one dead token", path)
		}
		alive = connector.WantsWorking(t, alive)
		connector.Refresh(t, "alm_rt_forged").WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	}
	connector.WantsWorking(t, connector.Connect(t, owner))
}

// TestBounds_HeadersReportRemainingConcurrency checks the headers for 64 concurrent requests per credential and
// service, and for two searches. The tests that unreachable names show that more are rejected.
func TestBounds_HeadersReportRemainingConcurrency(t *testing.T) {
	p, ws := inWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	for _, path := range []string{programmes, programmes + "?q=shelter", "/v1/engage/forms", ws.Clients()} {
		answer := api.Get(t, path).Wants(t, http.StatusOK)
		policy, left := answer.Header.Get("RateLimit-Policy"), answer.Header.Get("RateLimit")
		if !strings.Contains(policy, `"requests-in-flight";q=64;qu="concurrent-requests"`) ||
			!strings.Contains(left, `"requests-in-flight";r=63`) {
			t.Errorf("%s: %s, %s", path, policy, left)
		}
		searches := strings.Contains(policy, `"searches-in-flight";q=2;`) &&
			strings.Contains(left, `"searches-in-flight";r=1`)
		if searches != strings.Contains(path, "?q=") {
			t.Errorf("%s: %s, %s", path, policy, left)
		}
	}
}
