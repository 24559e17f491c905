package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// TestBounds_HeadersReportRemainingConcurrency checks the headers for 64 concurrent requests per credential and
// service, and for two searches. The tests that unreachable names show that more are rejected.
func TestBounds_HeadersReportRemainingConcurrency(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
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
