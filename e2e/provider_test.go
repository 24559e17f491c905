package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v2/jwa"
	"github.com/lestrrat-go/jwx/v2/jwk"
	"github.com/lestrrat-go/jwx/v2/jws"
)

// A provider is an OpenID Connect provider that signs everyone in at once, with the address email.
type provider struct {
	email string // set it before a sign-in

	server *httptest.Server
	key    *ecdsa.PrivateKey
	mu     sync.Mutex
	nonce  string // of the last authorization request
}

const providerClient = "almoner"

// newProvider starts a provider.
func newProvider(t testing.TB) *provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	p := &provider{key: key}
	p.server = httptest.NewServer(p)
	t.Cleanup(p.server.Close)
	return p
}

// settings are those of a deployment with this provider, which it calls by the name Riverside.
func (p *provider) settings() map[string]string {
	return map[string]string{
		"ALMONER_UPSTREAM_ISSUER":        p.server.URL,
		"ALMONER_UPSTREAM_CLIENT_ID":     providerClient,
		"ALMONER_UPSTREAM_CLIENT_SECRET": "not a secret",
		"ALMONER_UPSTREAM_NAME":          "Riverside",
	}
}

// ServeHTTP serves the provider's metadata, keys, authorization endpoint and token endpoint.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer := func(body any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		answer(map[string]any{
			"issuer":                                p.server.URL,
			"authorization_endpoint":                p.server.URL + "/authorize",
			"token_endpoint":                        p.server.URL + "/token",
			"jwks_uri":                              p.server.URL + "/jwks",
			"id_token_signing_alg_values_supported": []string{"ES256"},
		})
	case "/jwks":
		public, _ := jwk.FromRaw(p.key.Public())
		_ = public.Set(jwk.KeyIDKey, "one")
		answer(map[string]any{"keys": []any{public}})
	case "/authorize":
		q := r.URL.Query()
		p.nonce = q.Get("nonce")
		back := url.Values{"code": {rand.Text()}, "state": {q.Get("state")}}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
	case "/token":
		claims, _ := json.Marshal(map[string]any{
			"iss":            p.server.URL,
			"aud":            providerClient,
			"sub":            p.email,
			"nonce":          p.nonce,
			"iat":            time.Now().Unix(),
			"exp":            time.Now().Add(time.Minute).Unix(),
			"email":          p.email,
			"email_verified": true,
		})
		headers := jws.NewHeaders()
		_ = headers.Set(jws.KeyIDKey, "one")
		signed, err := jws.Sign(claims, jws.WithKey(jwa.ES256, p.key, jws.WithProtectedHeaders(headers)))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answer(map[string]any{"id_token": string(signed), "access_token": rand.Text(), "token_type": "Bearer"})
	default:
		http.NotFound(w, r)
	}
}
