package app_test

import (
	"net/url"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

func TestSignInMethods_OutageIs503AndUsesUpNothing(t *testing.T) {
	p := newProvider(t)
	s := own(t, p.of)
	ada := s.person()
	p.vouching(map[string]any{"email": ada.Email})
	d := s.added(ada)
	mine, stranger, other := s.signedIn(ada), s.browser(), s.browser()
	signed := url.Values{"credential": {d.signed(s.options(stranger, "/login/passkey/options"))}}
	callback := p.agree(s, begin(s, other, "/login/upstream"))
	again := url.Values{"credential": {d.signed(s.options(mine, "/login/again/passkey/options"))}}
	restore := s.fixture.Database.Cut(t)
	for name, page := range map[string]*browsertest.Page{
		"a challenge":         stranger.Post("/login/passkey/options", nil),
		"an answer":           stranger.Post("/login/passkey", signed),
		"the page":            mine.Get(keysPage),
		"a new one":           mine.Post(keysPage+"/options", nil),
		"a proof":             mine.Post("/login/again/passkey", again),
		"the question":        mine.Get("/login/again"),
		"to the provider":     other.Get("/login/upstream"),
		"back from it":        other.Get(callback),
		"a proof at provider": mine.Get("/login/again/upstream"),
		"a proof by password": mine.Post("/login/again", url.Values{"password": {browsertest.Password}}),
		"a removal":           mine.Post(removeKey, nil),
	} {
		s.wants(name, page, 503)
		equal(t, name+": says when to try again", page.Header.Get("Retry-After") != "", true)
	}
	restore()
	s.wants("the passkey's answer after the outage", stranger.Post("/login/passkey", signed), 303)
	s.wants("the provider's answer after the outage", other.Get(callback), 303)
}

func TestReauth_Password(t *testing.T) {
	s := shared(t)
	ada := s.person()
	b := s.signedIn(ada)
	proves := func(password, to string) *browsertest.Page {
		return b.Post("/login/again", url.Values{"password": {password}, "return": {to}})
	}
	s.wants("no password", proves("", "/settings/apps"), 400)
	s.wants("a wrong password", proves("wrong", "/settings/apps"), 400)
	s.recorded(0, audit.SignInProved, ada.ID)
	before := b.Cookies()
	s.wants("the password", proves(browsertest.Password, "//evil.example"), 303, "/settings/user")
	s.recorded(1, audit.SignInProved, ada.ID)
	s.hasEnded(before)
	equal(t, "signed in", inside(b), true)
	signedOut := s.browser().Get("/login/again?return=/settings/apps")
	s.wants("signed out", signedOut, 303, "/login?return=%2Fsettings%2Fapps")
	for range 10 {
		proves("wrong", "")
	}
	page := proves(browsertest.Password, "")
	s.wants("after ten wrong ones", page, 429)
	equal(t, "says when to try again", page.Header.Get("Retry-After") != "", true)
}
