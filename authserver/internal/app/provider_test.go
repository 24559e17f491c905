package app_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

const (
	clientID     = "almoner at riverside"
	clientSecret = "a secret of ours: 100% ours"
)

// An accounts is a small OpenID Connect provider. It checks what a client sends and issues the configured claims.
type accounts struct {
	server *httptest.Server
	key    *ecdsa.PrivateKey
	page   *provider // the user whose page /authorize is

	mu       sync.Mutex
	issued   map[string]consent // by code
	asked    map[string]int     // path → requests
	failing  map[string]int     // path → status
	hanging  bool
	metadata map[string]any // replaces members of the discovery document
}

// A consent is an authorization request and who agreed to it.
type consent struct {
	request url.Values
	by      *provider
}

// A provider is a user of accounts, whose claims a test determines.
type provider struct {
	*accounts
	t       testing.TB
	subject string
	claims  func(map[string]any)
	sign    func(payload []byte) string // signs the ID token
	moved   string                      // URL that the token endpoint redirects to
}

func serveAccounts(t testing.TB) *accounts {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.Must(t, err)
	a := &accounts{
		key:      key,
		issued:   map[string]consent{},
		asked:    map[string]int{},
		failing:  map[string]int{},
		metadata: map[string]any{},
	}
	a.server = httptest.NewServer(a)
	t.Cleanup(a.server.Close)
	return a
}

// newProvider starts a provider of this test alone.
func newProvider(t testing.TB) *provider {
	t.Helper()
	a := serveAccounts(t)
	a.page = a.user(t)
	return a.page
}

// provider returns a new user of the shared provider.
func (s *site) provider() *provider { return s.accounts.user(s.t) }

func (a *accounts) user(t testing.TB) *provider {
	p := &provider{accounts: a, t: t, subject: rand.Text(), claims: func(map[string]any) {}}
	p.sign = p.signed(a.key)
	return p
}

// of configures a deployment with this provider.
func (a *accounts) of(c *app.Config) {
	c.UpstreamIssuer, c.UpstreamClientID = a.server.URL, clientID
	c.UpstreamClientSecret = credential.Secret(clientSecret)
}

func (a *accounts) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

func (a *accounts) requests(path string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked[path]
}

func (p *provider) signed(key *ecdsa.PrivateKey) func([]byte) string {
	by := jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "one"}}
	signer, err := jose.NewSigner(by, nil)
	testkit.Must(p.t, err)
	return func(payload []byte) string {
		signed, err := signer.Sign(payload)
		if err != nil {
			p.t.Error(err)
			return ""
		}
		token, err := signed.CompactSerialize()
		if err != nil {
			p.t.Error(err)
		}
		return token
	}
}

func (a *accounts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.asked[r.URL.Path]++
	status, hanging := a.failing[r.URL.Path], a.hanging
	a.mu.Unlock()
	if hanging {
		<-r.Context().Done()
		return
	}
	if status != 0 {
		http.Error(w, "a page of the provider", status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		a.document(w)
	case "/jwks":
		public := jose.JSONWebKey{Key: a.key.Public(), KeyID: "one"}
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public}})
	case "/token":
		a.token(w, r)
	case "/authorize":
		a.authorize(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (a *accounts) document(w http.ResponseWriter) {
	document := map[string]any{
		"issuer":                                a.server.URL,
		"authorization_endpoint":                a.server.URL + "/authorize",
		"token_endpoint":                        a.server.URL + "/token",
		"jwks_uri":                              a.server.URL + "/jwks",
		"id_token_signing_alg_values_supported": []string{"ES256", "HS256", "none"},
	}
	a.set(func() { maps.Copy(document, a.metadata) })
	_ = json.NewEncoder(w).Encode(document)
}

// authorize shows a page with a link, so that the next request comes from the provider's site.
func (a *accounts) authorize(w http.ResponseWriter, r *http.Request) {
	code, q := rand.Text(), r.URL.Query()
	a.set(func() { a.issued[code] = consent{q, a.page} })
	back := q.Get("redirect_uri") + "?" + url.Values{"code": {code}, "state": {q.Get("state")}}.Encode()
	w.Header().Set("Content-Type", "text/html")
	const page = `<!doctype html><link rel="icon" href="data:,"><a href="%s">It is me</a>`
	_, _ = fmt.Fprintf(w, page, html.EscapeString(back))
}

// agree checks an authorization request and returns the path of its callback with a new code.
func (p *provider) agree(site *site, address string) string {
	p.t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		p.t.Fatal(err)
	}
	q := parsed.Query()
	for name, want := range map[string]string{
		"client_id": clientID, "response_type": "code", "scope": "openid email", "code_challenge_method": "S256",
		"redirect_uri": site.url + "/login/upstream/callback",
	} {
		if q.Get(name) != want {
			p.t.Errorf("%s is %q", name, q.Get(name))
		}
	}
	if len(q.Get("state")) < 22 || len(q.Get("nonce")) < 22 || q.Get("state") == q.Get("nonce") ||
		len(q.Get("code_challenge")) != 43 {
		p.t.Errorf("state, nonce or challenge: %v", q)
	}
	code := rand.Text()
	p.set(func() { p.issued[code] = consent{q, p} })
	return "/login/upstream/callback?" + url.Values{"code": {code}, "state": {q.Get("state")}}.Encode()
}

func (a *accounts) token(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id, secret, _ := r.BasicAuth()
	code := r.PostFormValue("code")
	agreed, known := a.issued[code]
	if known && agreed.by.moved != "" {
		http.Redirect(w, r, agreed.by.moved, http.StatusTemporaryRedirect)
		return
	}
	delete(a.issued, code)
	challenge := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	switch {
	case id != url.QueryEscape(clientID) || secret != url.QueryEscape(clientSecret):
		refuse(w, "invalid_client")
		return
	case !known || r.PostFormValue("redirect_uri") != agreed.request.Get("redirect_uri") ||
		r.PostFormValue("grant_type") != "authorization_code" ||
		base64.RawURLEncoding.EncodeToString(challenge[:]) != agreed.request.Get("code_challenge"):
		refuse(w, "invalid_grant")
		return
	}
	claims := map[string]any{
		"iss":            a.server.URL,
		"aud":            clientID,
		"sub":            agreed.by.subject,
		"nonce":          agreed.request.Get("nonce"),
		"iat":            time.Now().Unix(),
		"exp":            time.Now().Add(time.Minute).Unix(),
		"email_verified": true,
	}
	agreed.by.claims(claims)
	payload, _ := json.Marshal(claims)
	answer := map[string]any{"access_token": "of no use", "token_type": "Bearer", "id_token": agreed.by.sign(payload)}
	if answer["id_token"] == "" {
		delete(answer, "id_token")
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func refuse(w http.ResponseWriter, code string) {
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": code, "error_description": "words of the provider"})
}

// vouching sets the claims of the user's ID tokens.
func (p *provider) vouching(claims map[string]any) {
	p.set(func() {
		p.claims = func(c map[string]any) {
			maps.Copy(c, claims)
			maps.DeleteFunc(c, func(_ string, value any) bool { return value == nil })
		}
	})
}

// begin opens path and returns the URL that it redirects to.
func begin(s *site, b *browsertest.Browser, path string) string {
	s.t.Helper()
	page := b.Get(path)
	s.needs(path, page, http.StatusSeeOther)
	return page.Location()
}

// through signs in at the provider and returns the page of the callback.
func (p *provider) through(s *site, b *browsertest.Browser) *browsertest.Page {
	p.t.Helper()
	return b.Get(p.agree(s, begin(s, b, "/login/upstream?return=/settings/apps")))
}

// linked signs who in at the provider, now, and returns the browser.
func (p *provider) linked(s *site, who browsertest.Person) *browsertest.Browser {
	p.t.Helper()
	p.vouching(map[string]any{"email": who.Email, "sub": who.ID.String(), "auth_time": time.Now().Unix()})
	b := s.browser()
	s.needs("sign-in at the provider", p.through(s, b), http.StatusSeeOther)
	return b
}

const (
	linkPage  = "/settings/provider"
	unlink    = linkPage + "/unlink"
	notLinked = "You cannot sign in with a Riverside account yet."
)

func TestUnlink_EndsLinkAfterRecentAuthentication(t *testing.T) {
	s := shared(t)
	p, ada, bob := s.provider(), s.person(), s.person()
	s.wants("user without a link", s.signedIn(bob).Get(linkPage), 200, notLinked).Lacks("Unlink")
	b, bobs := p.linked(s, ada), p.linked(s, bob)
	form := b.Get(linkPage).Form(unlink)
	s.wants("another user", bobs.Post(unlink, form), 403)
	s.wants("another session of hers", s.signedIn(ada).Post(unlink, form), 403)
	s.wants("signed out", s.browser().Post(unlink, form), 303, "/login?")
	b.Headers.Set("Sec-Fetch-Site", "cross-site")
	s.wants("another site", b.Post(unlink, form), 403)
	b.Headers.Del("Sec-Fetch-Site")
	s.stale()
	s.wants("without a fresh proof", b.Post(unlink, form), 303, "/login/again?return="+url.QueryEscape(linkPage))
	s.wants("its page", b.Get(linkPage), 200, "confirm your identity first")
	s.rows(2, "identities", "user_id in ($1, $2)", ada.ID, bob.ID)
	b.Get("/login/again?return="+linkPage).Send("/login/again", browsertest.Fields{"password": browsertest.Password})
	s.wants("with a fresh proof", b.Post(unlink, form).Follow(), 200, "account was unlinked", notLinked)
	s.rows(0, "identities", "user_id = $1", ada.ID)
	s.rows(1, "identities", "user_id = $1", bob.ID)
	s.recorded(1, audit.IdentityUnlinked, ada.ID)
	s.wants("the events", b.Get("/settings/security"), 200, "Your account of another sign-in service was unlinked")
	s.wants("twice", b.Post(unlink, form).Follow(), 200, "No Riverside account was linked")
	s.recorded(1, audit.IdentityUnlinked, ada.ID)
}

// A thief with the password of a user who has a passkey cannot unlink the account.
func TestUnlink_PasswordAloneIsNotEnoughForUserWithPasskey(t *testing.T) {
	s := shared(t)
	p, ada := s.provider(), s.person()
	p.linked(s, ada)
	thief := s.signedIn(ada)
	form := thief.Get(linkPage).Form(unlink)
	s.fill(ada)
	s.fixture.Exec(`delete from account.authenticators where user_id = $1`, ada.ID)
	s.wants("the page", thief.Get(linkPage), 200, "confirm your identity first")
	refused := thief.Post(unlink, form)
	s.wants("the form", refused, 303, "/login/again?return="+url.QueryEscape(linkPage))
	s.rows(1, "identities", "subject = $1", ada.ID.String())
	s.wants("the page that follows", refused.Follow(), 200, "Use your passkey to continue.", "request a link").
		Lacks("Continue with Riverside")
}

func TestUnlink_LastSignInMethodIsRefused(t *testing.T) {
	t.Parallel()
	t.Run("passkeys offered", func(t *testing.T) {
		s := shared(t)
		s.unlinksBesides(s.provider(), 303)
	})
	t.Run("none offered", func(t *testing.T) {
		p := newProvider(t)
		own(t, p.of, plain).unlinksBesides(p, 409)
	})
}

// unlinksBesides unlinks an account without another way to sign in, and with a passkey, which has a status.
func (s *site) unlinksBesides(p *provider, passkey int) {
	ada := s.person()
	b := p.linked(s, ada)
	s.removePassword(ada)
	unlinks := func() *browsertest.Page { return b.Get(linkPage).Send(unlink, nil) }
	s.wants("nothing else", unlinks(), 409, "You need Riverside to sign in")
	s.insertPasskeys(1, ada)
	s.fixture.Exec(`update account.passkeys set copied_at = now() where user_id = $1`, ada.ID)
	s.wants("a passkey that was stopped", unlinks(), 409, "You need Riverside to sign in")
	s.rows(1, "identities", "user_id = $1", ada.ID)
	s.fixture.Exec(`update account.passkeys set copied_at = null where user_id = $1`, ada.ID)
	s.wants("a good passkey", unlinks(), passkey)
	s.rows(map[int]int{409: 1, 303: 0}[passkey], "identities", "user_id = $1", ada.ID)
}
