package gate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A signingKey is a signing key for ES256.
type signingKey struct{ jose.JSONWebKey }

// newKey returns a new private key with the key identifier name.
func newKey(t testing.TB, name string) signingKey {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.Must(t, err)
	return named(private, name)
}

// named returns a key of any kind with the key identifier name.
func named(raw any, name string) signingKey {
	return signingKey{jose.JSONWebKey{Key: raw, KeyID: name}}
}

// sign returns a token with the claims.
func (s signingKey) sign(t testing.TB, c accesstoken.Claims) string {
	t.Helper()
	signing, err := accesstoken.NewSigningKey(s.JSONWebKey)
	testkit.Must(t, err)
	token, err := accesstoken.Sign(signing, c)
	testkit.Must(t, err)
	return token.Reveal()
}

// public returns the public key.
func (s signingKey) public() signingKey { return signingKey{s.JSONWebKey.Public()} }

// jwks returns a document with the keys, unchanged.
func jwks(t testing.TB, keys ...signingKey) string {
	t.Helper()
	var set jose.JSONWebKeySet
	for _, key := range keys {
		set.Keys = append(set.Keys, key.JSONWebKey)
	}
	content, err := json.Marshal(set)
	testkit.Must(t, err)
	return string(content)
}

// An authserver imitates what this service sees of the real one: a JWKS over HTTP, which can fail or return invalid
// content.
type authserver struct {
	*httptest.Server
	t       testing.TB
	mu      sync.Mutex
	status  int
	content string
	asked   int
}

// newAuthserver starts a server that publishes the keys. It is closed when the test ends.
func newAuthserver(t testing.TB, keys ...signingKey) *authserver {
	t.Helper()
	a := &authserver{t: t}
	a.publish(keys...)
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.asked++
		w.WriteHeader(a.status)
		_, _ = w.Write([]byte(a.content))
	}))
	t.Cleanup(a.Close)
	return a
}

// publish sets the document to the public keys.
func (a *authserver) publish(keys ...signingKey) {
	a.t.Helper()
	public := make([]signingKey, len(keys))
	for i, key := range keys {
		public[i] = key.public()
	}
	a.answer(http.StatusOK, jwks(a.t, public...))
}

// answer sets the response.
func (a *authserver) answer(status int, content string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status, a.content = status, content
}

// requests returns how often the keys were requested.
func (a *authserver) requests() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}
