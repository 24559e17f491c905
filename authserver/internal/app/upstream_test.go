package app_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
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

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/signin/oidc"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
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
	s.wants("the events", b.Get("/settings/security"), 200, "An account of another sign-in service was linked to yours")
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
	s.wants("the question", b.Get("/login/again?return=/settings/developers"), 200, "Continue with Riverside").
		Lacks("Password")
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

func TestU1_AlteredIDTokenIsRefused(t *testing.T) {
	s := shared(t)
	p, ada := s.provider(), s.person()
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.must(err)
	encode := base64.RawURLEncoding.EncodeToString // go-jose refuses to sign with a key of less than 32 bytes
	signs := map[string]func([]byte) string{
		"another key": p.signed(stranger),
		"no ID token": func([]byte) string { return "" },
		"rubbish":     func([]byte) string { return "a.b.c" },
		"our secret as key": func(payload []byte) string {
			signed := encode([]byte(`{"alg":"HS256"}`)) + "." + encode(payload)
			mac := hmac.New(sha256.New, []byte(clientSecret))
			_, _ = mac.Write([]byte(signed))
			return signed + "." + encode(mac.Sum(nil))
		},
		"not signed": func(payload []byte) string {
			return encode([]byte(`{"alg":"none"}`)) + "." + encode(payload) + "."
		},
	}
	check := func(name string) {
		b := s.browser()
		s.refuses(b, name, p.through(s, b), 400, "We could not sign you in")
	}
	for name, claims := range map[string]map[string]any{
		"another issuer":              {"iss": "https://evil.example"},
		"another audience":            {"aud": "another client"},
		"no audience":                 {"aud": nil},
		"another nonce":               {"nonce": "x"},
		"no nonce":                    {"nonce": nil},
		"expired":                     {"exp": time.Now().Add(-time.Minute).Unix()},
		"no expiry":                   {"exp": nil},
		"several audiences, no party": {"aud": []string{clientID, "another client"}},
		"another party":               {"azp": "another client"},
		"an empty subject":            {"sub": ""},
		"no subject":                  {"sub": nil},
		"a long subject":              {"sub": strings.Repeat("a", 256)},
	} {
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
	p.vouching(map[string]any{"email": ada.Email, "aud": []string{clientID, "another client"}, "azp": clientID})
	s.wants("several audiences with our azp", p.through(s, s.browser()), 303)
}

// It has a provider of its own because it counts all requests to it.
func TestCallback_OnlyForItsAttempt(t *testing.T) {
	p := newProvider(t)
	s := own(t, p.of)
	p.vouching(map[string]any{"email": s.person().Email})
	mine, thief := s.browser(), s.browser()
	path := p.agree(s, begin(s, mine, "/login/upstream"))
	begin(s, thief, "/login/upstream")
	const callback, over = "/login/upstream/callback", "This sign-in is no longer valid"
	s.wants("a browser that began nothing", s.browser().Get(path), 400, over)
	s.wants("another browser with its own attempt", thief.Get(path), 400, over)
	for _, path := range []string{callback + "?code=x", callback, callback + "?code=x&state=y", path + "&state=y",
		path + "&code=y"} {
		s.wants(path, mine.Get(path), 400, over)
	}
	for _, once := range []string{path, "/login/upstream"} {
		page := s.wants("HEAD "+once, mine.Do(http.MethodHead, once, "", nil), 405)
		equal(t, "Allow", page.Header.Get("Allow"), "GET")
	}
	equal(t, "requests to the token endpoint", p.requests("/token"), 0)
	statuses := atOnce(4, func(int) *browsertest.Page { return mine.Get(path) })
	sameStatuses(t, "four at once", statuses, map[int]int{303: 1, 400: 3})
	late := p.agree(s, begin(s, thief, "/login/upstream"))
	s.fixture.Exec(`update account.ceremonies set expires_at = now()`)
	s.wants("late", thief.Get(late), 400, over)
	equal(t, "requests for the discovery document", p.requests("/.well-known/openid-configuration"), 1)
}

func TestCallback_ProviderErrorIsAPage(t *testing.T) {
	s := shared(t)
	for code, want := range map[string]int{
		"access_denied":           400,
		"anything <b>":            400,
		"":                        400,
		"server_error":            503,
		"temporarily_unavailable": 503,
	} {
		b := s.browser()
		parsed, err := url.Parse(begin(s, b, "/login/upstream?return=/settings/apps"))
		s.must(err)
		path := "/login/upstream/callback?" + url.Values{
			"error":             {code},
			"error_description": {"call this number"},
			"state":             {parsed.Query().Get("state")},
		}.Encode()
		s.wants(code, b.Get(path), want).Lacks("call this number", "anything")
		s.wants(code+" again", b.Get(path), 400, "This sign-in is no longer valid")
	}
}

func TestCallback_OtherIssuerIsRefused(t *testing.T) {
	s := shared(t)
	announcing := newProvider(t)
	announcing.metadata["authorization_response_iss_parameter_supported"] = true
	for _, c := range []struct {
		*provider
		at      *site
		without int // status of a callback without iss
	}{{s.provider(), s, 303}, {announcing, start(t, nil, announcing.of), 400}} {
		c.vouching(map[string]any{"email": c.at.person().Email})
		for iss, want := range map[string]int{"https://evil.example": 400, c.server.URL: 303} {
			b := c.at.browser()
			path := c.agree(c.at, begin(c.at, b, "/login/upstream"))
			s.wants(iss, b.Get(path+"&iss="+url.QueryEscape(iss)), want)
		}
		s.wants("no iss", c.through(c.at, c.at.browser()), c.without)
	}
}

// The requests that wait for a provider which does not respond have one time limit, and not one after the other.
func TestU4_ProviderOutageIsAPageAndIsRetried(t *testing.T) {
	p := newProvider(t)
	s := own(t, p.of)
	p.vouching(map[string]any{"email": s.person().Email})
	const next = "/settings/apps"
	from := "/login/upstream?return=" + next
	down := func(name string, page *browsertest.Page) {
		t.Helper()
		s.wants(name, page, 503, "Riverside does not respond").HasHeader("Retry-After").
			Contains(`href="/login?return=` + url.QueryEscape(next) + `"`)
	}
	p.set(func() { p.failing["/.well-known/openid-configuration"] = 500 })
	down("discovery", s.browser().Get(from))
	p.set(func() { p.failing = map[string]int{}; p.metadata["issuer"] = "https://evil.example" })
	down("another issuer", s.browser().Get(from))
	p.set(func() { p.metadata = map[string]any{"token_endpoint": "http://evil.example/token"} })
	down("an address without TLS", s.browser().Get(from))
	p.set(func() { p.metadata, p.hanging = map[string]any{}, true })
	asked := p.requests("/.well-known/openid-configuration")
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() { down("hanging", s.browser().Get(from)) })
	}
	all.Wait()
	// One, or two if a request was delayed until the first had failed.
	if n := p.requests("/.well-known/openid-configuration") - asked; n < 1 || n > 2 {
		t.Errorf("%d requests to a provider that hangs, want one for all within %s", n, oidc.RequestTimeout)
	}
	s.wants("the sign-in page", s.browser().Get("/login"), 200)
	p.set(func() { p.hanging, p.failing["/token"] = false, 502 })
	down("token endpoint", p.through(s, s.browser()))
	p.set(func() { p.failing = map[string]int{"/jwks": 500} })
	down("keys", p.through(s, s.browser()))
	p.set(func() { p.failing = map[string]int{} })
	s.wants("after the outage", p.through(s, s.browser()), 303)
}

func TestUpstream_SecretIsSentOnlyToTokenEndpoint(t *testing.T) {
	s := shared(t)
	p := s.provider()
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	p.vouching(map[string]any{"email": s.person().Email})
	p.set(func() { p.moved = other.URL })
	b := s.browser()
	if page := b.Get(p.agree(s, begin(s, b, "/login/upstream"))); page.Status < 400 || inside(b) {
		t.Errorf("a redirect: %d %s", page.Status, page.Text())
	}
	equal(t, "requests elsewhere", elsewhere.Load(), 0)
	p.set(func() { p.moved = "" })
	callback, err := url.Parse(p.agree(s, begin(s, b, "/login/upstream")))
	s.must(err)
	b.Get(callback.String())
	q := callback.Query()
	omits(t, "the log", s.log.String(), clientSecret, url.QueryEscape(clientSecret), q.Get("code"), q.Get("state"))
}

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
	c.press("a", "Continue with Riverside")
	c.press("a", "It is me")
	c.sees("h1", "Security")
	s.stale()
	c.open("/settings/passkeys")
	c.press("a", "Confirm your identity")
	c.sees("h1", "Confirm your identity")
	c.press("a", "Continue with Riverside")
	c.press("a", "It is me")
	c.sees("h2", "Add a passkey")
	c.signOut()
	p.vouching(map[string]any{"email": newAddress(), "sub": "nobody"})
	c.press("a", "Continue with Riverside")
	c.press("a", "It is me")
	c.sees("h1", "Your Riverside account is not known here")
	c.noFaults()
}
