package app_test

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// vouching sets the claims of the provider's ID tokens.
func (p *provider) vouching(claims map[string]any) {
	p.set(func() {
		p.claims = func(c map[string]any) {
			maps.Copy(c, claims)
			maps.DeleteFunc(c, func(_ string, value any) bool { return value == nil })
		}
	})
}

// start opens path and returns the URL that it redirects to.
func start(t *testing.T, b *browsertest.Browser, path string) string {
	t.Helper()
	page := b.Get(path)
	if page.Status != http.StatusSeeOther {
		t.Fatalf("%s: %d %s", path, page.Status, page.Text())
	}
	return page.Location()
}

// through signs in at the provider and returns the page of the callback.
func (p *provider) through(s *site, b *browsertest.Browser) *browsertest.Page {
	p.t.Helper()
	return b.Get(p.agree(s, start(p.t, b, "/login/upstream?return=/settings/apps")))
}

func TestUpstream_VerifiedAddressIsLinkedOnceAndSignsIn(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, p.of)
	ada := s.person()
	p.vouching(map[string]any{"email": strings.ToUpper(ada.Email)})
	b := s.browser()
	if !b.Get("/login").HasText("Continue with Riverside") {
		t.Error("the sign-in page does not offer it")
	}
	page := p.through(s, b)
	if page.Status != http.StatusSeeOther || page.Location() != "/settings/apps" ||
		!b.Get("/settings/user").HasText(ada.Email) {
		t.Fatalf("%d %q %s", page.Status, page.Location(), page.Text())
	}
	if s.events(ada.ID, audit.IdentityLinked) != 1 ||
		s.count(`select count(*) from account.sign_ins where method = 'upstream' and user_id = $1`, ada.ID) != 1 {
		t.Error("the link or the sign-in was not recorded")
	}
	if !b.Get("/settings/security").HasText("Linked an account at the identity provider") {
		t.Error("the security page does not show the link")
	}
	p.vouching(map[string]any{"email": "other@example.org", "email_verified": false})
	again := s.browser()
	if page := p.through(s, again); page.Status != http.StatusSeeOther ||
		!again.Get("/settings/user").HasText(ada.Email) {
		t.Errorf("linked user with another address: %d", page.Status)
	}
	if s.events(ada.ID, audit.IdentityLinked) != 1 || s.count(`select count(*) from account.users`) != 1 ||
		s.count(`select count(*) from account.memberships`) != 0 {
		t.Error("an unexpected link, user or membership was created")
	}
	if n := p.requests("/.well-known/openid-configuration"); n != 1 {
		t.Errorf("the provider was discovered %d times", n)
	}
}

func TestUpstream_SignInStartsNewSession(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, p.of)
	ada, bob := s.person(), s.person()
	p.vouching(map[string]any{"email": ada.Email})
	b := s.browser()
	address := start(t, b, "/login/upstream")
	b.SignIn(bob) // in another tab
	before := b.Cookies()
	if page := b.Get(p.agree(s, address)); page.Status != http.StatusSeeOther || page.Location() != "/settings/user" {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	stolen := s.browser()
	stolen.SetCookies(before)
	if inside(stolen) || !b.Get("/settings/user").HasText(ada.Email) {
		t.Error("the session from before the sign-in still counts")
	}
}

func TestU3_CallerParametersAreNotSentToProvider(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, p.of)
	b := s.browser()
	for range 2 {
		parsed, err := url.Parse(
			start(
				t,
				b,
				"/login/upstream?return=/settings/apps%3Fa%3Db&prompt=none&login_hint=x&client_id=y&scope=z"+
					"&redirect_uri=https://evil.example",
			),
		)
		s.must(err)
		names := slices.Sorted(maps.Keys(parsed.Query()))
		if want := []string{
			"client_id",
			"code_challenge",
			"code_challenge_method",
			"nonce",
			"redirect_uri",
			"response_type",
			"scope",
			"state",
		}; !slices.Equal(names, want) {
			t.Errorf("the provider gets the parameters %v", names)
		}
		if strings.Contains(parsed.String(), "settings") || strings.Contains(parsed.String(), "evil") ||
			!strings.HasPrefix(parsed.String(), p.server.URL+"/authorize?") {
			t.Errorf("redirected to %s", parsed)
		}
		p.agree(s, parsed.String())
	}
	p.vouching(map[string]any{"email": s.person().Email})
	page := b.Get(p.agree(s, start(t, b, "/login/upstream?return=//evil.example")))
	if page.Location() != "/settings/user" {
		t.Errorf("sign-in leads to %q", page.Location())
	}
}

func TestUpstream_UnknownUserIsRefused(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, p.of)
	ada, gone, kim := s.person(), s.person(), s.person()
	s.fixture.Exec(`update account.users set email = 'kim@example.org' where id = $1`, kim.ID)
	s.fixture.Exec(`update account.users set disabled_at = now() where id = $1`, gone.ID)
	for name, claims := range map[string]map[string]any{
		"unknown address":       {"email": "nobody@example.org"},
		"no address":            {},
		"address not verified":  {"email": ada.Email, "email_verified": false},
		"verified, says a text": {"email": ada.Email, "email_verified": "true"},
		"verified is not said":  {"email": ada.Email, "email_verified": nil},
		"letters that look so":  {"email": "\u212aim@example.org"}, // the Kelvin sign, whose lower case is k
		"a space":               {"email": ada.Email + " "},
		"disabled":              {"email": gone.Email},
	} {
		p.vouching(claims)
		b := s.browser()
		if page := p.through(s, b); page.Status != http.StatusForbidden || inside(b) {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
		}
	}
	if s.count(`select count(*) from account.identities`) != 0 || s.count(`select count(*) from account.users`) != 3 ||
		s.count(`select count(*) from account.sign_ins`) != 0 {
		t.Error("a link, user or sign-in was created")
	}
	if s.count(`select count(*) from account.audit_events where action = '`+audit.SignInRefused+`'`) != 8 ||
		s.events(gone.ID, audit.SignInRefused) != 1 {
		t.Error("a refusal was not recorded")
	}
}

func TestUpstream_DisabledUserIsRefused(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, p.of)
	ada := s.person()
	p.vouching(map[string]any{"email": ada.Email})
	if page := p.through(s, s.browser()); page.Status != http.StatusSeeOther {
		t.Fatal("refused before the user was disabled")
	}
	s.fixture.Exec(`update account.users set disabled_at = now() where id = $1`, ada.ID)
	b := s.browser()
	if page := p.through(s, b); page.Status != http.StatusForbidden || inside(b) {
		t.Errorf("%d", page.Status)
	}
}

func TestUpstream_ReassignedAddressIsRefused(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, p.of)
	ada := s.person()
	p.vouching(map[string]any{"email": ada.Email})
	p.through(s, s.browser())
	p.vouching(map[string]any{"email": ada.Email, "sub": "the next one with this address"})
	b := s.browser()
	if page := p.through(s, b); page.Status != http.StatusForbidden || inside(b) ||
		s.count(`select count(*) from account.identities`) != 1 {
		t.Errorf("%d", page.Status)
	}
}

func TestUpstream_TwoTabsSignInIndependently(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, p.of)
	p.vouching(map[string]any{"email": s.person().Email})
	b := s.browser()
	first := start(t, b, "/login/upstream?return=/settings/apps")
	second := start(t, b, "/login/upstream?return=/settings/security")
	if page := b.Get(p.agree(s, second)); page.Location() != "/settings/security" {
		t.Errorf("%d %q", page.Status, page.Location())
	}
	if page := b.Get(p.agree(s, first)); page.Location() != "/settings/apps" {
		t.Errorf("%d %q", page.Status, page.Location())
	}
}

// TestUpstream_ConcurrentPasskeyChallengeKeepsLogin checks that a login at the provider succeeds if the sign-in page
// requests a passkey challenge at the same time, wherever the page is shown.
func TestUpstream_ConcurrentPasskeyChallengeKeepsLogin(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, func(c *app.Config) { p.of(c); c.Passkeys = true })
	ada := s.person()
	p.vouching(map[string]any{"email": ada.Email})
	client, _ := s.fixture.Confidential(perm.ProgrammesRead)
	authorize := "/oauth/authorize?" + url.Values{
		"response_type": {"code"},
		"client_id":     {client.ID.String()},
		"redirect_uri":  {fixture.Callback},
		"state":         {"s"},
	}.Encode()
	for _, path := range []string{"/login", authorize} {
		b := s.browser()
		if page := b.Get(path); !page.HasText("Continue with Riverside") {
			t.Fatalf("%s is no sign-in page: %d %s", path, page.Status, page.Text())
		}
		before := b.Cookies()
		address := start(t, b, "/login/upstream")
		other := s.browser() // sends its request before the response to the first has arrived
		other.SetCookies(before)
		if page := other.Post("/login/passkey/options", nil); page.Status != http.StatusOK {
			t.Fatalf("%d %s", page.Status, page.Text())
		}
		b.SetCookies(other.Cookies()) // and its response arrives last
		if page := b.Get(p.agree(s, address)); page.Status != http.StatusSeeOther || !inside(b) {
			t.Errorf("%s: %d %s", path, page.Status, page.Text())
		}
	}
	plain := serve(t, func(*app.Config) {}).browser()
	if set := plain.Get("/login").Header.Values("Set-Cookie"); len(set) != 1 { // tells whether the browser accepts any
		t.Errorf("without passkeys and a provider, the sign-in page sets %d cookies", len(set))
	}
}

func TestU2_ReauthNeedsFreshAuthTime(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, p.of)
	ada := s.person()
	b := s.signedIn(ada)
	if b.Get("/login/again").HasText("Continue with Riverside") {
		t.Error("offered to a user without a link")
	}
	p.vouching(map[string]any{"email": ada.Email})
	b = s.browser()
	p.through(s, b)
	s.fixture.Exec(`update account.users set password_hash = null where id = $1`, ada.ID)
	s.stale()
	question := b.Get("/login/again?return=/settings/developers")
	if !question.HasText("Continue with Riverside") || question.HasText("Password") {
		t.Errorf("the question: %s", question.Text())
	}
	const again = "/login/again/upstream?return=/settings/apps"
	reauths := func() int { return s.events(ada.ID, audit.SignInProved) }
	for name, claims := range map[string]map[string]any{
		"not asked anew": {"auth_time": time.Now().Add(-time.Hour).Unix()}, "does not say": {},
		"another account": {"auth_time": time.Now().Unix(), "sub": "another", "email": ada.Email},
	} {
		p.vouching(claims)
		if page := b.Get(p.agree(s, start(t, b, again))); page.Status < 400 || page.Status > 403 || reauths() != 0 {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
		}
	}
	p.vouching(map[string]any{"auth_time": time.Now().Unix()})
	address := start(t, b, again)
	if q, _ := url.Parse(address); q.Query().Get("prompt") != "login" || q.Query().Get("max_age") != "0" {
		t.Errorf("the request does not force authentication: %s", q.RawQuery)
	}
	path := p.agree(s, address)
	before := b.Cookies()
	if page := b.Get(path); page.Status != http.StatusSeeOther || page.Location() != "/settings/apps" ||
		reauths() != 1 {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	old := s.browser()
	old.SetCookies(before)
	if inside(old) || !inside(b) {
		t.Error("the session from before the proof still counts")
	}
	path = p.agree(s, start(t, b, again))
	b.Post("/logout", nil)
	if page := b.Get(path); page.Status != http.StatusBadRequest || inside(b) || reauths() != 1 {
		t.Errorf("reauthentication of an ended sign-in: %d", page.Status)
	}
	if page := b.Get(again); !strings.HasPrefix(page.Location(), "/login?") {
		t.Errorf("reauthentication while signed out: %d %q", page.Status, page.Location())
	}
}

func TestUpstream_IsOptional(t *testing.T) {
	t.Parallel()
	s := serve(t, func(*app.Config) {})
	for _, path := range []string{"/login/upstream", "/login/upstream/callback", "/login/again/upstream"} {
		if page := s.browser().Get(path); page.Status != http.StatusNotFound {
			t.Errorf("%s: %d", path, page.Status)
		}
	}
	if s.browser().Get("/login").HasText("Continue with") {
		t.Error("the sign-in page offers it")
	}
}
