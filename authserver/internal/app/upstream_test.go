package app_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v2/jwa"
	"github.com/lestrrat-go/jwx/v2/jws"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/browsertest"
)

// vouching makes the provider say this of whoever is there.
func (p *provider) vouching(claims map[string]any) {
	p.set(func() {
		p.claims = func(c map[string]any) {
			maps.Copy(c, claims)
			maps.DeleteFunc(c, func(_ string, value any) bool { return value == nil })
		}
	})
}

// start is where a browser is sent by the button on the sign-in page.
func start(t *testing.T, b *browsertest.Browser, path string) string {
	t.Helper()
	page := b.Get(path)
	if page.Status != http.StatusSeeOther {
		t.Fatalf("%s: %d %s", path, page.Status, page.Text())
	}
	return page.Location()
}

// through signs in at the provider, and is what our callback answers.
func (p *provider) through(s *site, b *browsertest.Browser) *browsertest.Page {
	p.t.Helper()
	return b.Get(p.agree(s, start(p.t, b, "/login/upstream?return=/settings/apps")))
}

func TestSomebodyWhoseVerifiedAddressIsAUsersIsLinkedOnceAndComesIn(t *testing.T) {
	p := newProvider(t)
	s := serve(t, p.of)
	ada := s.person()
	p.vouching(map[string]any{"email": strings.ToUpper(ada.Email)})
	b := s.browser()
	if !b.Get("/login").Says("Continue with Riverside") {
		t.Error("the sign-in page does not offer it")
	}
	page := p.through(s, b)
	if page.Status != http.StatusSeeOther || page.Location() != "/settings/apps" || !b.Get("/settings/user").Says(ada.Email) {
		t.Fatalf("%d %q %s", page.Status, page.Location(), page.Text())
	}
	if s.events(ada.ID, "identity.linked") != 1 || s.count(`select count(*) from account.sign_ins where method = 'upstream' and user_id = $1`, ada.ID) != 1 {
		t.Error("the link or the sign-in is not on record")
	}
	p.vouching(map[string]any{"email": "other@example.org", "email_verified": false})
	again := s.browser()
	if page := p.through(s, again); page.Status != http.StatusSeeOther || !again.Get("/settings/user").Says(ada.Email) {
		t.Errorf("whoever is linked, by whatever address: %d", page.Status)
	}
	if s.events(ada.ID, "identity.linked") != 1 || s.count(`select count(*) from account.users`) != 1 || s.count(`select count(*) from account.memberships`) != 0 {
		t.Error("something was made that should not have been")
	}
	if n := p.requests("/.well-known/openid-configuration"); n != 1 {
		t.Errorf("the provider was discovered %d times", n)
	}
}

func TestASignInAtTheProviderHasASessionOfItsOwn(t *testing.T) {
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
	if inside(stolen) || !b.Get("/settings/user").Says(ada.Email) {
		t.Error("the session from before the sign-in still counts")
	}
}

func TestU3NothingOfACallersRequestReachesTheProvider(t *testing.T) {
	p := newProvider(t)
	s := serve(t, p.of)
	b := s.browser()
	for range 2 {
		parsed, err := url.Parse(start(t, b, "/login/upstream?return=/settings/apps%3Fa%3Db&prompt=none&login_hint=x&client_id=y&scope=z&redirect_uri=https://evil.example"))
		s.must(err)
		names := slices.Sorted(maps.Keys(parsed.Query()))
		if want := []string{"client_id", "code_challenge", "code_challenge_method", "nonce", "redirect_uri", "response_type", "scope", "state"}; !slices.Equal(names, want) {
			t.Errorf("it is sent %v", names)
		}
		if strings.Contains(parsed.String(), "settings") || strings.Contains(parsed.String(), "evil") || !strings.HasPrefix(parsed.String(), p.server.URL+"/authorize?") {
			t.Errorf("it is sent to %s", parsed)
		}
		p.agree(s, parsed.String())
	}
	p.vouching(map[string]any{"email": s.person().Email})
	page := b.Get(p.agree(s, start(t, b, "/login/upstream?return=//evil.example")))
	if page.Location() != "/settings/user" {
		t.Errorf("it leads to %q", page.Location())
	}
}

func TestWhoIsNotKnownHereStaysOut(t *testing.T) {
	p := newProvider(t)
	s := serve(t, p.of)
	ada, gone, kim := s.person(), s.person(), s.person()
	s.world.Exec(`update account.users set email = 'kim@example.org' where id = $1`, kim.ID)
	s.world.Exec(`update account.users set disabled_at = now() where id = $1`, gone.ID)
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
	if s.count(`select count(*) from account.identities`) != 0 || s.count(`select count(*) from account.users`) != 3 || s.count(`select count(*) from account.sign_ins`) != 0 {
		t.Error("something was made")
	}
	if s.count(`select count(*) from account.audit_events where action = 'sign_in.refused'`) != 8 || s.events(gone.ID, "sign_in.refused") != 1 {
		t.Error("a refusal is not on record")
	}
}

func TestALinkedUserWhoIsDisabledStaysOut(t *testing.T) {
	p := newProvider(t)
	s := serve(t, p.of)
	ada := s.person()
	p.vouching(map[string]any{"email": ada.Email})
	if page := p.through(s, s.browser()); page.Status != http.StatusSeeOther {
		t.Fatal("not good to begin with")
	}
	s.world.Exec(`update account.users set disabled_at = now() where id = $1`, ada.ID)
	b := s.browser()
	if page := p.through(s, b); page.Status != http.StatusForbidden || inside(b) {
		t.Errorf("%d", page.Status)
	}
}

func TestAnAddressThatWasGivenToSomebodyElseOpensNothing(t *testing.T) {
	p := newProvider(t)
	s := serve(t, p.of)
	ada := s.person()
	p.vouching(map[string]any{"email": ada.Email})
	p.through(s, s.browser())
	p.vouching(map[string]any{"email": ada.Email, "sub": "the next one with this address"})
	b := s.browser()
	if page := p.through(s, b); page.Status != http.StatusForbidden || inside(b) || s.count(`select count(*) from account.identities`) != 1 {
		t.Errorf("%d", page.Status)
	}
}

func TestU1AnIDTokenThatIsNotQuiteRightIsRefused(t *testing.T) {
	p := newProvider(t)
	s := serve(t, p.of)
	ada := s.person()
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.must(err)
	spoilt := map[string]map[string]any{
		"another issuer": {"iss": "https://evil.example"}, "another audience": {"aud": "somebody else"}, "no audience": {"aud": nil},
		"another nonce": {"nonce": "x"}, "no nonce": {"nonce": nil}, "expired": {"exp": time.Now().Add(-time.Minute).Unix()},
		"no expiry": {"exp": nil}, "several audiences, no party": {"aud": []string{clientID, "somebody else"}},
		"another party": {"azp": "somebody else"}, "nobody": {"sub": ""}, "no subject": {"sub": nil}, "a long subject": {"sub": strings.Repeat("a", 256)},
	}
	signs := map[string]func([]byte) string{
		"another key": p.signed(stranger), "no ID token": func([]byte) string { return "" }, "rubbish": func([]byte) string { return "a.b.c" },
		"our secret as key": func(payload []byte) string {
			token, _ := jws.Sign(payload, jws.WithKey(jwa.HS256, []byte(clientSecret)))
			return string(token)
		},
		"not signed": func(payload []byte) string {
			token, _ := jws.Sign(payload, jws.WithInsecureNoSignature())
			return string(token)
		},
	}
	check := func(name string) {
		b := s.browser()
		if page := p.through(s, b); page.Status != http.StatusBadRequest || !page.Says("We could not sign you in") || inside(b) {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
		}
	}
	for name, claims := range spoilt {
		claims["email"] = ada.Email
		p.vouching(claims)
		check(name)
	}
	p.vouching(map[string]any{"email": ada.Email})
	good := p.sign
	for name, sign := range signs {
		p.set(func() { p.sign = sign })
		check(name)
	}
	p.set(func() { p.sign = good })
	p.vouching(map[string]any{"email": ada.Email, "aud": []string{clientID, "somebody else"}, "azp": clientID})
	if page := p.through(s, s.browser()); page.Status != http.StatusSeeOther {
		t.Errorf("several audiences, and we are the party: %d", page.Status)
	}
}

func TestAnAnswerIsForTheAttemptThatWaitsForIt(t *testing.T) {
	p := newProvider(t)
	s := serve(t, p.of)
	p.vouching(map[string]any{"email": s.person().Email})
	mine, thief := s.browser(), s.browser()
	path := p.agree(s, start(t, mine, "/login/upstream"))
	start(t, thief, "/login/upstream")
	over := func(name string, page *browsertest.Page) {
		t.Helper()
		if page.Status != http.StatusBadRequest || !page.Says("This sign-in is over") {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
		}
	}
	over("a browser that began nothing", s.browser().Get(path))
	over("another browser, which began one of its own", thief.Get(path))
	over("no state", mine.Get("/login/upstream/callback?code=x"))
	over("nothing", mine.Get("/login/upstream/callback"))
	over("unknown state", mine.Get("/login/upstream/callback?code=x&state=y"))
	over("twice the same parameter", mine.Get(path+"&state=y"))
	over("twice the code", mine.Get(path+"&code=y"))
	if page := mine.Do(http.MethodHead, path, "", nil); page.Status != http.StatusMethodNotAllowed {
		t.Errorf("HEAD: %d", page.Status)
	}
	if n := p.requests("/token"); n != 0 {
		t.Errorf("the provider was asked %d times for nothing", n)
	}
	statuses := make([]int, 4)
	var all sync.WaitGroup
	for i := range statuses {
		all.Go(func() { statuses[i] = mine.Get(path).Status })
	}
	all.Wait()
	slices.Sort(statuses)
	if !slices.Equal(statuses, []int{303, 400, 400, 400}) {
		t.Errorf("four at once: %v", statuses)
	}
	late := p.agree(s, start(t, thief, "/login/upstream"))
	s.world.Exec(`update account.ceremonies set expires_at = now()`)
	over("late", thief.Get(late))
}

func TestTwoTabsSignInIndependently(t *testing.T) {
	p := newProvider(t)
	s := serve(t, p.of)
	p.vouching(map[string]any{"email": s.person().Email})
	b := s.browser()
	first, second := start(t, b, "/login/upstream?return=/settings/apps"), start(t, b, "/login/upstream?return=/settings/security")
	if page := b.Get(p.agree(s, second)); page.Location() != "/settings/security" {
		t.Errorf("%d %q", page.Status, page.Location())
	}
	if page := b.Get(p.agree(s, first)); page.Location() != "/settings/apps" {
		t.Errorf("%d %q", page.Status, page.Location())
	}
}

func TestAnErrorOfTheProviderIsAPage(t *testing.T) {
	p := newProvider(t)
	s := serve(t, p.of)
	for code, want := range map[string]int{"access_denied": 400, "anything <b>": 400, "": 400, "server_error": 503, "temporarily_unavailable": 503} {
		b := s.browser()
		parsed, err := url.Parse(start(t, b, "/login/upstream?return=/settings/apps"))
		s.must(err)
		query := url.Values{"error": {code}, "error_description": {"call this number"}, "state": {parsed.Query().Get("state")}}.Encode()
		page := b.Get("/login/upstream/callback?" + query)
		if page.Status != want || page.Says("call this number") || page.Says("anything") {
			t.Errorf("%q: %d %s", code, page.Status, page.Text())
		}
		if page := b.Get("/login/upstream/callback?" + query); page.Status != 400 || !page.Says("This sign-in is over") {
			t.Errorf("%q again: %d", code, page.Status)
		}
	}
}

func TestAnAnswerFromAnotherIssuerIsRefused(t *testing.T) {
	for _, announced := range []bool{false, true} {
		p := newProvider(t)
		p.metadata["authorization_response_iss_parameter_supported"] = announced
		s := serve(t, p.of)
		p.vouching(map[string]any{"email": s.person().Email})
		for iss, want := range map[string]int{"https://evil.example": 400, p.server.URL: 303} {
			b := s.browser()
			path := p.agree(s, start(t, b, "/login/upstream"))
			if page := b.Get(path + "&iss=" + url.QueryEscape(iss)); page.Status != want {
				t.Errorf("announced %v, iss %s: %d", announced, iss, page.Status)
			}
		}
		want := map[bool]int{false: 303, true: 400}[announced]
		if page := p.through(s, s.browser()); page.Status != want {
			t.Errorf("announced %v, no iss: %d", announced, page.Status)
		}
	}
}

func TestU4AProviderThatIsDownIsAPageAndIsAskedAgain(t *testing.T) {
	p := newProvider(t)
	s := serve(t, p.of)
	p.vouching(map[string]any{"email": s.person().Email})
	down := func(name string, page *browsertest.Page) {
		t.Helper()
		if page.Status != http.StatusServiceUnavailable || page.Header.Get("Retry-After") == "" || !page.Says("Riverside does not answer") {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
		}
	}
	p.set(func() { p.failing["/.well-known/openid-configuration"] = 500 })
	down("discovery", s.browser().Get("/login/upstream"))
	p.set(func() { p.failing = map[string]int{}; p.metadata["issuer"] = "https://evil.example" })
	down("another issuer", s.browser().Get("/login/upstream"))
	p.set(func() { p.metadata = map[string]any{"token_endpoint": "http://evil.example/token"} })
	down("an address without TLS", s.browser().Get("/login/upstream"))
	p.set(func() { p.metadata, p.hanging = map[string]any{}, true })
	began := time.Now()
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() { down("hanging", s.browser().Get("/login/upstream")) })
	}
	all.Wait()
	if took := time.Since(began); took < 4*time.Second || took > 8*time.Second {
		t.Errorf("it was waited for %s", took)
	}
	if page := s.browser().Get("/login"); page.Status != http.StatusOK {
		t.Error("the sign-in page is down with the provider")
	}
	p.set(func() { p.hanging, p.failing["/token"] = false, 502 })
	down("token endpoint", p.through(s, s.browser()))
	p.set(func() { p.failing = map[string]int{"/jwks": 500} })
	down("keys", p.through(s, s.browser()))
	p.set(func() { p.failing = map[string]int{} })
	if page := p.through(s, s.browser()); page.Status != http.StatusSeeOther {
		t.Errorf("after the outage: %d %s", page.Status, page.Text())
	}
}

func TestOurSecretGoesToTheTokenEndpointAlone(t *testing.T) {
	p := newProvider(t)
	s := serve(t, p.of)
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	p.vouching(map[string]any{"email": s.person().Email})
	p.set(func() { p.moved = other.URL })
	b := s.browser()
	path := p.agree(s, start(t, b, "/login/upstream"))
	if page := b.Get(path); page.Status < 400 || inside(b) || elsewhere.Load() != 0 {
		t.Errorf("%d, %d requests elsewhere", page.Status, elsewhere.Load())
	}
	p.set(func() { p.moved = "" })
	callback, err := url.Parse(p.agree(s, start(t, b, "/login/upstream")))
	s.must(err)
	b.Get(callback.String())
	for name, secret := range map[string]string{
		"client secret": clientSecret, "encoded secret": url.QueryEscape(clientSecret), "code": callback.Query().Get("code"), "state": callback.Query().Get("state"),
	} {
		if strings.Contains(s.log.String(), secret) {
			t.Errorf("the %s is in the log", name)
		}
	}
}

func TestU2TheProviderIsANewProofWhenItAsksAnew(t *testing.T) {
	p := newProvider(t)
	s := serve(t, p.of)
	ada := s.person()
	b := s.signedIn(ada)
	if b.Get("/login/again").Says("Continue with Riverside") {
		t.Error("it is offered to somebody who is not linked")
	}
	p.vouching(map[string]any{"email": ada.Email})
	b = s.browser()
	p.through(s, b)
	s.world.Exec(`update account.users set password_hash = null where id = $1`, ada.ID)
	s.stale()
	question := b.Get("/login/again?return=/settings/developers")
	if !question.Says("Continue with Riverside") || question.Says("Password") {
		t.Errorf("the question: %s", question.Text())
	}
	const again = "/login/again/upstream?return=/settings/apps"
	proved := func() int { return s.events(ada.ID, "sign_in.proved") }
	for name, claims := range map[string]map[string]any{
		"not asked anew": {"auth_time": time.Now().Add(-time.Hour).Unix()}, "does not say": {},
		"another account": {"auth_time": time.Now().Unix(), "sub": "another", "email": ada.Email},
	} {
		p.vouching(claims)
		if page := b.Get(p.agree(s, start(t, b, again))); page.Status < 400 || page.Status > 403 || proved() != 0 {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
		}
	}
	p.vouching(map[string]any{"auth_time": time.Now().Unix()})
	address := start(t, b, again)
	if q, _ := url.Parse(address); q.Query().Get("prompt") != "login" || q.Query().Get("max_age") != "0" {
		t.Errorf("it is not asked to ask anew: %s", q.RawQuery)
	}
	path := p.agree(s, address)
	before := b.Cookies()
	if page := b.Get(path); page.Status != http.StatusSeeOther || page.Location() != "/settings/apps" || proved() != 1 {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	old := s.browser()
	old.SetCookies(before)
	if inside(old) || !inside(b) {
		t.Error("the session from before the proof still counts")
	}
	path = p.agree(s, start(t, b, again))
	b.Post("/logout", nil)
	if page := b.Get(path); page.Status != http.StatusBadRequest || inside(b) || proved() != 1 {
		t.Errorf("a proof for a sign-in that is over: %d", page.Status)
	}
	if page := b.Get(again); !strings.HasPrefix(page.Location(), "/login?") {
		t.Errorf("nobody is asked for a proof: %d %q", page.Status, page.Location())
	}
}

func TestAnUpstreamProviderIsAnOption(t *testing.T) {
	s := serve(t, func(*app.Config) {})
	for _, path := range []string{"/login/upstream", "/login/upstream/callback", "/login/again/upstream"} {
		if page := s.browser().Get(path); page.Status != http.StatusNotFound {
			t.Errorf("%s: %d", path, page.Status)
		}
	}
	if s.browser().Get("/login").Says("Continue with") {
		t.Error("the sign-in page offers it")
	}
}

func TestMistakesInTheSettingsOfTheWaysToSignIn(t *testing.T) {
	good := app.Config{
		BaseURL: "https://api.example.org", AppURL: "https://app.example.org", Keys: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		Passkeys: true, UpstreamIssuer: "https://id.example.org", UpstreamClientID: "almoner", UpstreamClientSecret: "secret",
	}
	if mistakes := good.Check(); len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	for name, spoil := range map[string]func(*app.Config){
		"ALMONER_PASSKEYS":               func(c *app.Config) { c.AppURL = "https://192.0.2.1" },
		"ALMONER_UPSTREAM_CLIENT_SECRET": func(c *app.Config) { c.UpstreamClientSecret = "" },
		"ALMONER_UPSTREAM_CLIENT_ID":     func(c *app.Config) { c.UpstreamClientID = "" },
		"ALMONER_UPSTREAM_ISSUER":        func(c *app.Config) { c.UpstreamIssuer = "http://id.example.org" },
		"ALMONER_UPSTREAM_ISSUER, ":      func(c *app.Config) { c.UpstreamIssuer = "" },
	} {
		config := good
		spoil(&config)
		mistakes := config.Check()
		if len(mistakes) != 1 || !strings.Contains(mistakes[0].Error(), name) || strings.Contains(mistakes[0].Error(), "secret") {
			t.Errorf("%s: %v", name, mistakes)
		}
	}
}
