package app_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

func TestU2_SignInIsAsFreshAsAuthTime(t *testing.T) {
	t.Parallel()
	s := shared(t)
	p, ada := s.provider(), s.person()
	for name, c := range map[string]struct {
		authTime any
		fresh    bool
	}{
		"it does not say":      {nil, false},
		"just now":             {time.Now().Unix(), true},
		"nine minutes ago":     {time.Now().Add(-9 * time.Minute).Unix(), true},
		"an hour ago":          {time.Now().Add(-time.Hour).Unix(), false},
		"its clock is ahead":   {time.Now().Add(30 * time.Second).Unix(), true},
		"tomorrow":             {time.Now().Add(24 * time.Hour).Unix(), false},
		"before there was any": {-5, false},
	} {
		p.vouching(map[string]any{"email": ada.Email, "auth_time": c.authTime})
		b := s.browser()
		p.through(s, b)
		page := b.Get(keysPage)
		s.wants(name, page, 200)
		equal(t, name+": fresh", !page.HasText("confirm your identity first"), c.fresh)
		equal(t, name+": a passkey may be added", b.Post(keysPage+"/options", nil).Status == 200, c.fresh)
	}
}

// It has a service of its own because it counts all challenges.
func TestSignIn_TooManyAttemptsFromAddressAreLimited(t *testing.T) {
	t.Parallel()
	s := own(t, newProvider(t).of)
	stranger, other := s.browser(), s.browser()
	stranger.Headers.Set("X-Forwarded-For", "192.0.2.1")
	other.Headers.Set("X-Forwarded-For", "192.0.2.2")
	asks := func() *browsertest.Page { return stranger.Post("/login/passkey/options", nil) }
	for range 600 {
		s.needs("a challenge", asks(), 200)
	}
	page := asks()
	s.wants("one more challenge", page, 429, "Too many attempts")
	if wait, err := strconv.Atoi(page.Header.Get("Retry-After")); err != nil || wait < 1 || wait > 900 {
		t.Errorf("it says to wait for %q", page.Header.Get("Retry-After"))
	}
	page = stranger.Get("/login/upstream")
	s.wants("the provider", page, 429)
	equal(t, "it says when to try again", page.Header.Get("Retry-After") != "", true)
	s.rows(600, "ceremonies", "true")
	s.wants("from elsewhere", other.Post("/login/passkey/options", nil), 200)
	stranger.SignIn(s.person()) // passwords are counted separately
}
