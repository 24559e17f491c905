package app_test

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestUpstream_VerifiedAddressIsLinkedOnceAndSignsIn(t *testing.T) {
	s := shared(t)
	p, ada, another := s.provider(), s.person(), newAddress()
	p.vouching(map[string]any{"email": strings.ToUpper(ada.Email)})
	b := s.browser()
	s.wants("the sign-in page", b.Get("/login"), 200, "Continue with Riverside")
	s.needs("the first sign-in", p.through(s, b), 303, "/settings/apps")
	s.wants("its user", b.Get("/settings/user"), 200, ada.Email)
	s.recorded(1, audit.IdentityLinked, ada.ID)
	s.rows(1, "sign_ins", "method = 'upstream' and user_id = $1", ada.ID)
	s.wants("the events", b.Get("/settings/security"), 200, "Linked an account at the identity provider")
	p.vouching(map[string]any{"email": another, "email_verified": false})
	again := s.browser()
	s.wants("linked user with another address", p.through(s, again), 303)
	s.wants("its user", again.Get("/settings/user"), 200, ada.Email)
	s.recorded(1, audit.IdentityLinked, ada.ID)
	s.rows(1, "users", "email in ($1, $2)", ada.Email, another)
	s.rows(0, "memberships", "user_id = $1", ada.ID)
}

func TestUpstream_SignInStartsNewSession(t *testing.T) {
	s := shared(t)
	p, ada, bob := s.provider(), s.person(), s.person()
	p.vouching(map[string]any{"email": ada.Email})
	b := s.browser()
	address := begin(s, b, "/login/upstream")
	b.SignIn(bob) // in another tab
	before := b.Cookies()
	s.needs("the callback", b.Get(p.agree(s, address)), 303, "/settings/user")
	s.hasEnded(before)
	s.wants("the user", b.Get("/settings/user"), 200, ada.Email)
}

func TestU3_CallerParametersAreNotSentToProvider(t *testing.T) {
	s := shared(t)
	p, b := s.provider(), s.browser()
	for range 2 {
		address := begin(s, b, "/login/upstream?return=/settings/apps%3Fa%3Db&prompt=none&login_hint=x&client_id=y"+
			"&scope=z&redirect_uri=https://evil.example")
		parsed, err := url.Parse(address)
		s.must(err)
		names := strings.Join(slices.Sorted(maps.Keys(parsed.Query())), " ")
		const want = "client_id code_challenge code_challenge_method nonce redirect_uri response_type scope state"
		equal(t, "the parameters", names, want)
		omits(t, "the address", address, "settings", "evil")
		equal(t, "the endpoint", address[:strings.Index(address, "?")], p.server.URL+"/authorize")
		p.agree(s, address)
	}
	p.vouching(map[string]any{"email": s.person().Email})
	page := b.Get(p.agree(s, begin(s, b, "/login/upstream?return=//evil.example")))
	s.wants("a return to another site", page, 303, "/settings/user")
}

func TestUpstream_UnknownUserIsRefused(t *testing.T) {
	s := shared(t)
	p, ada, gone := s.provider(), s.person(), s.person()
	kim, unknown := "kim-"+ada.Email, newAddress()
	s.personAt(kim)
	s.fixture.Exec(`update account.users set disabled_at = now() where id = $1`, gone.ID)
	refusals := func() int {
		return read[int](s, `select count(*) from account.audit_events where action = $1 and detail->>'address' = $2`,
			audit.SignInRefused, s.address)
	}
	for name, claims := range map[string]map[string]any{
		"unknown address":       {"email": unknown},
		"no address":            {},
		"address not verified":  {"email": ada.Email, "email_verified": false},
		"verified, says a text": {"email": ada.Email, "email_verified": "true"},
		"verified is not said":  {"email": ada.Email, "email_verified": nil},
		"letters that look so":  {"email": "\u212a" + kim[1:]}, // the Kelvin sign, whose lower case is k
		"a space":               {"email": ada.Email + " "},
		"disabled":              {"email": gone.Email},
	} {
		p.vouching(claims)
		b, before := s.browser(), refusals()
		s.refuses(b, name, p.through(s, b), 403)
		equal(t, name+": refusals recorded", refusals(), before+1)
	}
	s.recorded(1, audit.SignInRefused, gone.ID)
	s.rows(0, "identities", "subject = $1", p.subject)
	s.rows(0, "sign_ins", "user_id = any($1)", *s.people)
	s.rows(0, "users", "email = $1", unknown)
}

func TestUpstream_ReassignedAddressAndDisabledUserAreRefused(t *testing.T) {
	s := shared(t)
	p, ada := s.provider(), s.person()
	p.vouching(map[string]any{"email": ada.Email})
	s.needs("at first", p.through(s, s.browser()), 303)
	p.vouching(map[string]any{"email": ada.Email, "sub": "the one after " + p.subject})
	b := s.browser()
	s.refuses(b, "the next one with this address", p.through(s, b), 403)
	s.rows(1, "identities", "user_id = $1", ada.ID)
	p.vouching(map[string]any{"email": ada.Email})
	s.fixture.Exec(`update account.users set disabled_at = now() where id = $1`, ada.ID)
	s.refuses(b, "disabled", p.through(s, b), 403)
}

func TestUpstream_TwoTabsSignInIndependently(t *testing.T) {
	s := shared(t)
	p, b := s.provider(), s.browser()
	p.vouching(map[string]any{"email": s.person().Email})
	first := begin(s, b, "/login/upstream?return=/settings/apps")
	second := begin(s, b, "/login/upstream?return=/settings/security")
	s.wants("the second tab", b.Get(p.agree(s, second)), 303, "/settings/security")
	s.wants("the first tab", b.Get(p.agree(s, first)), 303, "/settings/apps")
}

// A login at the provider succeeds if the sign-in page requests a passkey challenge at the same time, wherever the page
// is shown.
func TestUpstream_ConcurrentPasskeyChallengeKeepsLogin(t *testing.T) {
	s := shared(t)
	p := s.provider()
	p.vouching(map[string]any{"email": s.person().Email})
	client, _ := s.fixture.Confidential(perm.ProgrammesRead)
	authorize := "/oauth/authorize?" + url.Values{
		"response_type": {"code"},
		"client_id":     {client.ID.String()},
		"redirect_uri":  {fixture.Callback},
		"state":         {"s"},
	}.Encode()
	for _, path := range []string{"/login", authorize} {
		b := s.browser()
		s.needs(path, b.Get(path), 200, "Continue with Riverside")
		before := b.Cookies()
		address := begin(s, b, "/login/upstream")
		other := s.browser() // sends its request before the response to the first has arrived
		other.SetCookies(before)
		s.needs("the challenge", other.Post("/login/passkey/options", nil), 200)
		b.SetCookies(other.Cookies()) // and its response arrives last
		s.wants("the callback", b.Get(p.agree(s, address)), 303)
		equal(t, "signed in", inside(b), true)
	}
	set := bare(t).forTest(t).browser().Get("/login").Header.Values("Set-Cookie")
	equal(t, "cookies of a page without passkeys and a provider", len(set), 1) // tells whether the browser accepts any
}

func TestU2_ReauthNeedsFreshAuthTime(t *testing.T) {
	s := shared(t)
	p, ada := s.provider(), s.person()
	s.lacks("a user without a link", s.signedIn(ada).Get("/login/again"), "Continue with Riverside")
	p.vouching(map[string]any{"email": ada.Email})
	b := s.browser()
	p.through(s, b)
	s.removePassword(ada)
	s.stale()
	question := b.Get("/login/again?return=/settings/developers")
	s.wants("the question", question, 200, "Continue with Riverside")
	s.lacks("the question", question, "Password")
	const again = "/login/again/upstream?return=/settings/apps"
	for name, claims := range map[string]map[string]any{
		"not asked anew":  {"auth_time": time.Now().Add(-time.Hour).Unix()},
		"does not say":    {},
		"another account": {"auth_time": time.Now().Unix(), "sub": "not " + p.subject, "email": ada.Email},
	} {
		p.vouching(claims)
		if page := b.Get(p.agree(s, begin(s, b, again))); page.Status < 400 || page.Status > 403 {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
		}
	}
	s.recorded(0, audit.SignInProved, ada.ID)
	p.vouching(map[string]any{"auth_time": time.Now().Unix()})
	address := begin(s, b, again)
	contains(t, "the request, which forces authentication,", address, "prompt=login", "max_age=0")
	path := p.agree(s, address)
	before := b.Cookies()
	s.needs("a fresh proof", b.Get(path), 303, "/settings/apps")
	s.hasEnded(before)
	equal(t, "signed in", inside(b), true)
	path = p.agree(s, begin(s, b, again))
	b.Post("/logout", nil)
	s.refuses(b, "the proof of an ended sign-in", b.Get(path), 400)
	s.recorded(1, audit.SignInProved, ada.ID)
	s.wants("a proof while signed out", b.Get(again), 303, "/login?")
}

func TestUpstream_IsOptional(t *testing.T) {
	s := basic(t)
	for _, path := range []string{"/login/upstream", "/login/upstream/callback", "/login/again/upstream"} {
		s.wants(path, s.browser().Get(path), 404)
	}
	s.lacks("the sign-in page", s.browser().Get("/login"), "Continue with")
}
