package app

import (
	"testing"
)

// Without keys every access token would be refused: a new process waits for them, and one that has cached keys stays
// ready.
func TestReady_RequiresSigningKeysOnce(t *testing.T) {
	t.Parallel()
	authserver := newAuthserver(t)
	authserver.answer(502, "")
	s := ownService(t, func(c *Config) { c.JWKSURL, c.RedisURL = authserver.URL, "" })
	ready := func() answer { return s.get("/readyz", nil) }
	requests{"ready": ready}.unavailable(t)
	authserver.publish(s.key)
	s.eventually(t, 200, ready)
	authserver.answer(502, "")
	if a := ready(); a.Status != 200 || a.Body != `{"keys":"ok","postgres":"ok"}`+"\n" {
		t.Errorf("%d %q", a.Status, a.Body)
	}
}
