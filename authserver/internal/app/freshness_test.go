package app_test

import (
	"log/slog"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func TestU2_SignInIsAsFreshAsAuthTime(t *testing.T) {
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

// Most were begun at another process. It has a service of its own because it counts all challenges.
func TestSignIn_TooManyAttemptsFromAddressAreLimited(t *testing.T) {
	var url credential.Secret
	s := own(t, newProvider(t).of, func(c *app.Config) { url = c.RedisURL })
	rdb, err := redis.Connect(credential.Fixed(url), testkit.StoreWait)
	s.must(err)
	defer func() { _ = rdb.Close() }()
	elsewhere := session.NewAttempts(redis.NewLoginCounters(rdb), slog.New(slog.DiscardHandler), time.Now)
	for range 597 {
		elsewhere.Begun(t.Context(), netip.MustParseAddr("192.0.2.1"))
	}
	stranger, other := s.browser(), s.browser()
	stranger.Headers.Set("X-Forwarded-For", "192.0.2.1")
	other.Headers.Set("X-Forwarded-For", "192.0.2.2")
	asks := func() *browsertest.Page { return stranger.Post("/login/passkey/options", nil) }
	for range 3 {
		s.needs("a challenge", asks(), 200)
	}
	page := asks()
	s.wants("one more challenge", page, 429, "Too many attempts")
	if wait, err := strconv.Atoi(page.Header.Get("Retry-After")); err != nil || wait < 1 || wait > 900 {
		t.Errorf("it says to wait for %q", page.Header.Get("Retry-After"))
	}
	page = stranger.Get("/login/upstream")
	s.wants("the provider", page.HasHeader("Retry-After"), 429)
	s.rows(3, "ceremonies", "true")
	s.wants("from elsewhere", other.Post("/login/passkey/options", nil), 200)
	stranger.SignIn(s.person()) // passwords are counted separately
}
