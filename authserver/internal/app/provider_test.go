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

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

const (
	clientID     = "almoner at riverside"
	clientSecret = "a secret of ours: 100% ours"
)

// A provider is a small OpenID Connect provider. It checks what a client sends and issues the configured claims.
type provider struct {
	t      *testing.T
	server *httptest.Server
	key    *ecdsa.PrivateKey

	mu       sync.Mutex
	issued   map[string]url.Values // code → the authorization request
	asked    map[string]int        // path → requests
	failing  map[string]int        // path → status
	hanging  bool
	metadata map[string]any // replaces members of the discovery document
	// claims changes the claims, and sign signs the ID token.
	claims func(map[string]any)
	sign   func(payload []byte) string
	moved  string // URL that the token endpoint redirects to
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{
		t:        t,
		key:      key,
		issued:   map[string]url.Values{},
		asked:    map[string]int{},
		failing:  map[string]int{},
		metadata: map[string]any{},
		claims:   func(map[string]any) {},
	}
	p.sign = p.signed(key)
	p.server = httptest.NewServer(p)
	t.Cleanup(p.server.Close)
	return p
}

// of configures a deployment with this provider.
func (p *provider) of(c *app.Config) {
	c.UpstreamIssuer, c.UpstreamClientID = p.server.URL, clientID
	c.UpstreamClientSecret = credential.Secret(clientSecret)
}

func (p *provider) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *provider) requests(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[path]
}

func (p *provider) signed(key *ecdsa.PrivateKey) func([]byte) string {
	return func(payload []byte) string {
		signer, err := jose.NewSigner(
			jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "one"}}, nil,
		)
		if err != nil {
			p.t.Error(err)
			return ""
		}
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

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked[r.URL.Path]++
	status, hanging := p.failing[r.URL.Path], p.hanging
	p.mu.Unlock()
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
		p.document(w)
	case "/jwks":
		public := jose.JSONWebKey{Key: p.key.Public(), KeyID: "one"}
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public}})
	case "/token":
		p.token(w, r)
	case "/authorize":
		p.authorize(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (p *provider) document(w http.ResponseWriter) {
	document := map[string]any{
		"issuer":                                p.server.URL,
		"authorization_endpoint":                p.server.URL + "/authorize",
		"token_endpoint":                        p.server.URL + "/token",
		"jwks_uri":                              p.server.URL + "/jwks",
		"id_token_signing_alg_values_supported": []string{"ES256", "HS256", "none"},
	}
	p.mu.Lock()
	maps.Copy(document, p.metadata)
	p.mu.Unlock()
	_ = json.NewEncoder(w).Encode(document)
}

// authorize shows a page with a link, so that the next request comes from the provider's site.
func (p *provider) authorize(w http.ResponseWriter, r *http.Request) {
	code, q := rand.Text(), r.URL.Query()
	p.set(func() { p.issued[code] = q })
	back := q.Get("redirect_uri") + "?" + url.Values{"code": {code}, "state": {q.Get("state")}}.Encode()
	w.Header().Set("Content-Type", "text/html")
	_, _ = fmt.Fprintf(
		w,
		`<!doctype html><link rel="icon" href="data:,"><a href="%s">It is me</a>`,
		html.EscapeString(back),
	)
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
	p.set(func() { p.issued[code] = q })
	return "/login/upstream/callback?" + url.Values{"code": {code}, "state": {q.Get("state")}}.Encode()
}

func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.moved != "" {
		http.Redirect(w, r, p.moved, http.StatusTemporaryRedirect)
		return
	}
	id, secret, _ := r.BasicAuth()
	code := r.PostFormValue("code")
	request, known := p.issued[code]
	delete(p.issued, code)
	challenge := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	switch {
	case id != url.QueryEscape(clientID) || secret != url.QueryEscape(clientSecret):
		p.refuse(w, "invalid_client")
		return
	case !known || r.PostFormValue("redirect_uri") != request.Get("redirect_uri") ||
		r.PostFormValue("grant_type") != "authorization_code" ||
		base64.RawURLEncoding.EncodeToString(challenge[:]) != request.Get("code_challenge"):
		p.refuse(w, "invalid_grant")
		return
	}
	claims := map[string]any{
		"iss":            p.server.URL,
		"aud":            clientID,
		"sub":            "248289761001",
		"nonce":          request.Get("nonce"),
		"iat":            time.Now().Unix(),
		"exp":            time.Now().Add(time.Minute).Unix(),
		"email_verified": true,
	}
	p.claims(claims)
	payload, _ := json.Marshal(claims)
	answer := map[string]any{"access_token": "of no use", "token_type": "Bearer", "id_token": p.sign(payload)}
	if answer["id_token"] == "" {
		delete(answer, "id_token")
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (p *provider) refuse(w http.ResponseWriter, code string) {
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": code, "error_description": "words of the provider"})
}
