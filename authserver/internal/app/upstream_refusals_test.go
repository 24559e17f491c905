package app_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/signin/oidc"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

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
		page := mine.Do(http.MethodHead, once, "", nil)
		s.wants("HEAD "+once, page, 405)
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
		page := b.Get(path)
		s.wants(code, page, want)
		s.lacks(code, page, "call this number", "anything")
		s.wants(code+" again", b.Get(path), 400, "This sign-in is no longer valid")
	}
}

func TestCallback_OtherIssuerIsRefused(t *testing.T) {
	t.Parallel()
	for name, announced := range map[string]bool{"announced": true, "not announced": false} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t)
			p.metadata["authorization_response_iss_parameter_supported"] = announced
			s := own(t, p.of)
			p.vouching(map[string]any{"email": s.person().Email})
			for iss, want := range map[string]int{"https://evil.example": 400, p.server.URL: 303} {
				b := s.browser()
				path := p.agree(s, begin(s, b, "/login/upstream"))
				s.wants(iss, b.Get(path+"&iss="+url.QueryEscape(iss)), want)
			}
			s.wants("no iss", p.through(s, s.browser()), map[bool]int{false: 303, true: 400}[announced])
		})
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
		s.wants(name, page, 503, "Riverside does not respond")
		equal(t, name+": says when to try again", page.Header.Get("Retry-After") != "", true)
		contains(t, name+": the page", page.Body, `href="/login?return=`+url.QueryEscape(next)+`"`)
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
