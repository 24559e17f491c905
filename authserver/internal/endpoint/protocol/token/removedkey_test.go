package token_test

import (
	"crypto/rand"
	"encoding/base64"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
)

// elsewhere returns the keyring of another process with these master keys.
func (b *testEnv) elsewhere(masters credential.Secret) *keyring.Keyring {
	b.t.Helper()
	keys, err := seal.ParseKeys(masters)
	b.must(err)
	ring, err := keyring.New(b.Store, keys)
	b.must(err)
	return ring
}

// Contract, section 6. Another process removes the key that signs: the next request of any kind, without a reload,
// gets a token of another key.
func TestToken_RemovedKeySignsNothing(t *testing.T) {
	t.Parallel()
	b := ownTestEnv(t)
	elsewhere := b.elsewhere(b.Keys)
	held := b.connected()
	for what, send := range map[string]func() apitest.Answer{
		"refresh":                           func() apitest.Answer { return b.refresh(held.Refresh) },
		"exchange of a connector":           func() apitest.Answer { return b.exchange() },
		"exchange of a confidential client": func() apitest.Answer { return b.link() },
		"exchange with an Idempotency-Key": func() apitest.Answer {
			_, code := b.Consent(b.app, b.user)
			return b.exchangeWith(code, someKey)
		},
	} {
		before := b.claims(b.exchange()).KeyID
		b.must(elsewhere.Remove(t.Context(), before, "admin"))
		answer := send()
		b.given(what, answer)
		if b.claims(answer).KeyID == before {
			t.Errorf("%s: a removed key signed the token", what)
		}
	}
}

// G10. Every key that this process knows is removed, and it lacks the master key that seals the others: its 503 uses up
// no credential.
func TestToken_IsNotUsedUpWithoutSigningKey(t *testing.T) {
	t.Parallel()
	b := ownTestEnv(t)
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails (crypto/rand)
	foreign := credential.Secret(base64.RawURLEncoding.EncodeToString(random))
	elsewhere, later := b.elsewhere(foreign+","+b.Keys), b.elsewhere(b.Keys+","+foreign)
	b.given("a first exchange", b.exchange()) // later ones of this client need no snapshot
	held, repeating := b.connected(), b.connected()
	b.given("a refresh with an Idempotency-Key", b.refreshWith(repeating, someKey))
	_, code := b.Consent(b.app, b.user)
	_, linked := b.Consent(b.linked, b.user)
	for range 2 { // the current key and the next one
		stored, err := b.Store.SigningKeys(t.Context())
		b.must(err)
		for _, key := range stored {
			if key.State == keyring.Current {
				b.must(elsewhere.Remove(t.Context(), key.KID, "admin"))
			}
		}
	}
	sends := map[string]func() apitest.Answer{
		"refresh":                           func() apitest.Answer { return b.refresh(held.Refresh) },
		"repeated refresh":                  func() apitest.Answer { return b.refreshWith(repeating, someKey) },
		"exchange of a connector":           func() apitest.Answer { return b.exchangeCode(code) },
		"exchange of a confidential client": func() apitest.Answer { return b.linkCode(linked) },
	}
	for what, send := range sends {
		b.Wants(what, send(), 503, "temporarily_unavailable")
	}
	_, err := later.Reseal(t.Context(), "admin")
	b.must(err)
	for what, send := range sends {
		b.given(what+" afterwards", send())
	}
}
