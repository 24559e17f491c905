// Package keystest provides tests with signing keys and a JWKS server.
//
// An Authserver imitates what this service sees of the real one: a JWKS over HTTP, which can fail or return invalid
// content.
package keystest

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
)

// A Key is a signing key for ES256.
type Key struct{ jose.JSONWebKey }

// NewKey returns a new private key with the key identifier name.
func NewKey(t testing.TB, name string) Key {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return Named(private, name)
}

// Named returns a key of any kind with the key identifier name.
func Named(raw any, name string) Key {
	return Key{jose.JSONWebKey{Key: raw, KeyID: name}}
}

// Sign returns a token with the claims.
func (k Key) Sign(t testing.TB, c accesstoken.Claims) string {
	t.Helper()
	signing, err := accesstoken.NewSigningKey(k.JSONWebKey)
	if err != nil {
		t.Fatal(err)
	}
	token, err := accesstoken.Sign(signing, c)
	if err != nil {
		t.Fatal(err)
	}
	return token.Reveal()
}

// Public returns the public key.
func (k Key) Public() Key { return Key{k.JSONWebKey.Public()} }

// JWKS returns a document with the keys, unchanged.
func JWKS(t testing.TB, keys ...Key) string {
	t.Helper()
	var set jose.JSONWebKeySet
	for _, key := range keys {
		set.Keys = append(set.Keys, key.JSONWebKey)
	}
	content, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// An Authserver publishes keys.
type Authserver struct {
	*httptest.Server
	t       testing.TB
	mu      sync.Mutex
	status  int
	content string
	asked   int
}

// NewAuthserver starts a server that publishes the keys. It is closed when the test ends.
func NewAuthserver(t testing.TB, keys ...Key) *Authserver {
	t.Helper()
	a := &Authserver{t: t}
	a.Publish(keys...)
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

// Publish sets the document to the public keys.
func (a *Authserver) Publish(keys ...Key) {
	a.t.Helper()
	public := make([]Key, len(keys))
	for i, key := range keys {
		public[i] = key.Public()
	}
	a.Answer(http.StatusOK, JWKS(a.t, public...))
}

// Answer sets the response.
func (a *Authserver) Answer(status int, content string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status, a.content = status, content
}

// Requests returns how often the keys were requested.
func (a *Authserver) Requests() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}
