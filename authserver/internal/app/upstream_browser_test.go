package app_test

import (
	"testing"
	"time"
)

// The provider is at 127.0.0.1 and the server at localhost. These are two sites, so a real browser decides which
// cookies it sends.
func TestChromium_UpstreamProvider(t *testing.T) {
	s := shared(t)
	p, ada := s.provider(), s.person()
	p.set(func() { p.page = p }) // no other test opens the page of the shared provider
	p.vouching(map[string]any{"email": ada.Email, "auth_time": time.Now().Unix()})
	c := openChromium(t, s)
	c.known = []string{p.server.URL + "/authorize"}
	c.open("/settings/security")
	c.sees("h1", "Sign in")
	c.picture("login-all")
	c.press("a", "Continue with Riverside")
	c.press("a", "It is me")
	c.sees("h1", "Security")
	c.picture("security")
	s.stale()
	c.open("/settings/passkeys")
	c.press("a", "Confirm your identity")
	c.sees("h1", "Confirm your identity")
	c.picture("again-all")
	c.press("a", "Continue with Riverside")
	c.press("a", "It is me")
	c.sees("h2", "Add a passkey")
	c.signOut()
	p.vouching(map[string]any{"email": newAddress(), "sub": "nobody"})
	c.press("a", "Continue with Riverside")
	c.press("a", "It is me")
	c.sees("h1", "Your Riverside account is not known here")
	c.picture("upstream-unknown")
	c.noFaults()
}
