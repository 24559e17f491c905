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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/almonerhq/almoner/authserver/internal/signin/oidc"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

func TestU1_AlteredIDTokenIsRefused(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, p.of)
	ada := s.person()
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.must(err)
	spoilt := map[string]map[string]any{
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
	}
	signs := map[string]func([]byte) string{
		"another key": p.signed(stranger),
		"no ID token": func([]byte) string { return "" },
		"rubbish":     func([]byte) string { return "a.b.c" },
		"our secret as key": func(payload []byte) string {
			encode := base64.RawURLEncoding.EncodeToString // go-jose refuses to sign with a key of less than 32 bytes
			signed := encode([]byte(`{"alg":"HS256"}`)) + "." + encode(payload)
			mac := hmac.New(sha256.New, []byte(clientSecret))
			_, _ = mac.Write([]byte(signed))
			return signed + "." + encode(mac.Sum(nil))
		},
		"not signed": func(payload []byte) string {
			encode := base64.RawURLEncoding.EncodeToString
			return encode([]byte(`{"alg":"none"}`)) + "." + encode(payload) + "."
		},
	}
	check := func(name string) {
		b := s.browser()
		if page := p.through(s, b); page.Status != http.StatusBadRequest ||
			!page.HasText("We could not sign you in") ||
			inside(b) {
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
	p.vouching(map[string]any{"email": ada.Email, "aud": []string{clientID, "another client"}, "azp": clientID})
	if page := p.through(s, s.browser()); page.Status != http.StatusSeeOther {
		t.Errorf("several audiences with our azp: %d", page.Status)
	}
}

func TestCallback_OnlyForItsAttempt(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, p.of)
	p.vouching(map[string]any{"email": s.person().Email})
	mine, thief := s.browser(), s.browser()
	path := p.agree(s, start(t, mine, "/login/upstream"))
	start(t, thief, "/login/upstream")
	over := func(name string, page *browsertest.Page) {
		t.Helper()
		if page.Status != http.StatusBadRequest || !page.HasText("This sign-in is no longer valid") {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
		}
	}
	over("a browser that began nothing", s.browser().Get(path))
	over("another browser with its own attempt", thief.Get(path))
	over("no state", mine.Get("/login/upstream/callback?code=x"))
	over("nothing", mine.Get("/login/upstream/callback"))
	over("unknown state", mine.Get("/login/upstream/callback?code=x&state=y"))
	over("twice the same parameter", mine.Get(path+"&state=y"))
	over("twice the code", mine.Get(path+"&code=y"))
	for _, once := range []string{path, "/login/upstream"} {
		if page := mine.Do(http.MethodHead, once, "", nil); page.Status != http.StatusMethodNotAllowed ||
			page.Header.Get("Allow") != "GET" {
			t.Errorf("HEAD %s: %d %v", once, page.Status, page.Header)
		}
	}
	if n := p.requests("/token"); n != 0 {
		t.Errorf("the token endpoint received %d requests, want 0", n)
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
	s.fixture.Exec(`update account.ceremonies set expires_at = now()`)
	over("late", thief.Get(late))
}

func TestCallback_ProviderErrorIsAPage(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, p.of)
	for code, want := range map[string]int{
		"access_denied":           400,
		"anything <b>":            400,
		"":                        400,
		"server_error":            503,
		"temporarily_unavailable": 503,
	} {
		b := s.browser()
		parsed, err := url.Parse(start(t, b, "/login/upstream?return=/settings/apps"))
		s.must(err)
		query := url.Values{
			"error":             {code},
			"error_description": {"call this number"},
			"state":             {parsed.Query().Get("state")},
		}.Encode()
		page := b.Get("/login/upstream/callback?" + query)
		if page.Status != want || page.HasText("call this number") || page.HasText("anything") {
			t.Errorf("%q: %d %s", code, page.Status, page.Text())
		}
		if page := b.Get("/login/upstream/callback?" + query); page.Status != 400 ||
			!page.HasText("This sign-in is no longer valid") {
			t.Errorf("%q again: %d", code, page.Status)
		}
	}
}

func TestCallback_OtherIssuerIsRefused(t *testing.T) {
	t.Parallel()
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

// leadsTo reports whether the page has a link to the path.
func leadsTo(page *browsertest.Page, path string) bool {
	return slices.ContainsFunc(page.Elements("a"), func(a *html.Node) bool {
		return slices.ContainsFunc(a.Attr, func(one html.Attribute) bool {
			return one.Key == "href" && one.Val == path
		})
	})
}

func TestU4_ProviderOutageIsAPageAndIsRetried(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, p.of)
	p.vouching(map[string]any{"email": s.person().Email})
	next := "/settings/apps"
	from := "/login/upstream?return=" + next
	down := func(name string, page *browsertest.Page) {
		t.Helper()
		if page.Status != http.StatusServiceUnavailable || page.Header.Get("Retry-After") == "" ||
			!page.HasText("Riverside does not respond") {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
		}
		if !leadsTo(page, "/login?return="+url.QueryEscape(next)) {
			t.Errorf("%s: the page does not lead back to %s", name, next)
		}
	}
	p.set(func() { p.failing["/.well-known/openid-configuration"] = 500 })
	down("discovery", s.browser().Get(from))
	p.set(func() { p.failing = map[string]int{}; p.metadata["issuer"] = "https://evil.example" })
	down("another issuer", s.browser().Get(from))
	p.set(func() { p.metadata = map[string]any{"token_endpoint": "http://evil.example/token"} })
	down("an address without TLS", s.browser().Get(from))
	p.set(func() { p.metadata, p.hanging = map[string]any{}, true })
	began := time.Now()
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() { down("hanging", s.browser().Get(from)) })
	}
	all.Wait()
	if took := time.Since(began); took < oidc.RequestTimeout || took >= 3*oidc.RequestTimeout {
		t.Errorf("the requests took %s: one time limit is for all, not one after the other", took)
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

func TestUpstream_SecretIsSentOnlyToTokenEndpoint(t *testing.T) {
	t.Parallel()
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
		"client secret":  clientSecret,
		"encoded secret": url.QueryEscape(clientSecret),
		"code":           callback.Query().Get("code"),
		"state":          callback.Query().Get("state"),
	} {
		if strings.Contains(s.log.String(), secret) {
			t.Errorf("the %s is in the log", name)
		}
	}
}
