package app_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

func TestSignInMethods_OutageIs503AndUsesUpNothing(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, func(c *app.Config) { p.of(c); c.Passkeys = true })
	ada := s.person()
	p.vouching(map[string]any{"email": ada.Email})
	d := s.added(ada)
	mine, stranger, other := s.signedIn(ada), s.browser(), s.browser()
	signed := url.Values{"credential": {d.signed(options(t, stranger, "/login/passkey/options"))}}
	callback := p.agree(s, start(t, other, "/login/upstream"))
	again := d.signed(options(t, mine, "/login/again/passkey/options"))
	restore := s.fixture.Database.Cut(t)
	for name, page := range map[string]*browsertest.Page{
		"a challenge":         stranger.Post("/login/passkey/options", nil),
		"an answer":           stranger.Post("/login/passkey", signed),
		"the page":            mine.Get("/settings/passkeys"),
		"a new one":           mine.Post("/settings/passkeys/options", nil),
		"a proof":             mine.Post("/login/again/passkey", url.Values{"credential": {again}}),
		"the question":        mine.Get("/login/again"),
		"to the provider":     other.Get("/login/upstream"),
		"back from it":        other.Get(callback),
		"a proof at provider": mine.Get("/login/again/upstream"),
		"a proof by password": mine.Post("/login/again", url.Values{"password": {browsertest.Password}}),
		"a removal":           mine.Post("/settings/passkeys/remove", nil),
	} {
		if page.Status != http.StatusServiceUnavailable || page.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
		}
	}
	restore()
	if page := stranger.Post("/login/passkey", signed); page.Status != http.StatusSeeOther {
		t.Errorf("the passkey's answer after the outage: %d %s", page.Status, page.Text())
	}
	if page := other.Get(callback); page.Status != http.StatusSeeOther {
		t.Errorf("the provider's answer after the outage: %d %s", page.Status, page.Text())
	}
}

func TestReauth_Password(t *testing.T) {
	t.Parallel()
	s := serve(t, func(*app.Config) {})
	ada := s.person()
	b := s.signedIn(ada)
	for password, want := range map[string]int{"": 400, "wrong": 400} {
		page := b.Post("/login/again", url.Values{"password": {password}, "return": {"/settings/apps"}})
		if page.Status != want || s.events(ada.ID, audit.SignInProved) != 0 {
			t.Errorf("%q: %d", password, page.Status)
		}
	}
	before := b.Cookies()
	page := b.Post("/login/again", url.Values{"password": {browsertest.Password}, "return": {"//evil.example"}})
	if page.Status != http.StatusSeeOther || page.Location() != "/settings/user" ||
		s.events(ada.ID, audit.SignInProved) != 1 {
		t.Errorf("%d %q", page.Status, page.Location())
	}
	old := s.browser()
	old.SetCookies(before)
	if inside(old) || !inside(b) {
		t.Error("the session from before the proof still counts")
	}
	page = s.browser().Get("/login/again?return=/settings/apps")
	if page.Location() != "/login?return=%2Fsettings%2Fapps" {
		t.Errorf("signed out: %d %q", page.Status, page.Location())
	}
	for range 10 {
		b.Post("/login/again", url.Values{"password": {"wrong"}})
	}
	if page := b.Post("/login/again", url.Values{
		"password": {browsertest.Password},
	}); page.Status != http.StatusTooManyRequests ||
		page.Header.Get("Retry-After") == "" {
		t.Errorf("after ten wrong ones: %d", page.Status)
	}
}
