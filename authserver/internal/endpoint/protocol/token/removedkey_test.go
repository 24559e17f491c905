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

// Contract, section 6. Another process removes the key that signs: the next request of any kind, without a reload,
// gets a token of another key.
func TestToken_RemovedKeySignsNothing(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	keys, err := seal.ParseKeys(b.Keys)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := keyring.New(b.Store, keys)
	if err != nil {
		t.Fatal(err)
	}
	held := b.Connected(b.app, b.user)
	for what, send := range map[string]func() apitest.Answer{
		"refresh":                           func() apitest.Answer { return b.refresh(held.Refresh) },
		"exchange of a connector":           func() apitest.Answer { return b.exchange() },
		"exchange of a confidential client": func() apitest.Answer { return b.link() },
		"exchange with an Idempotency-Key": func() apitest.Answer {
			_, code := b.Consent(b.app, b.user)
			return b.exchangeWith(code.Reveal(), someKey)
		},
	} {
		before := b.claims(b.exchange()).KeyID
		if err := elsewhere.Remove(t.Context(), before, "admin"); err != nil {
			t.Fatal(err)
		}
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
	b := newTestEnv(t)
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails (crypto/rand)
	foreign := base64.RawURLEncoding.EncodeToString(random)
	with := func(masters string) *keyring.Keyring {
		keys, err := seal.ParseKeys(credential.Secret(masters))
		if err != nil {
			t.Fatal(err)
		}
		ring, err := keyring.New(b.Store, keys)
		if err != nil {
			t.Fatal(err)
		}
		return ring
	}
	elsewhere, later := with(foreign+","+b.Keys.Reveal()), with(b.Keys.Reveal()+","+foreign)
	b.given("a first exchange", b.exchange()) // later ones of this client need no snapshot
	held, repeating := b.Connected(b.app, b.user), b.Connected(b.app, b.user)
	first := b.refreshWith(repeating, someKey)
	b.given("a refresh with an Idempotency-Key", first)
	_, code := b.Consent(b.app, b.user)
	_, linked := b.Consent(b.linked, b.user)
	for range 2 { // the current key and the next one
		stored, err := b.Store.SigningKeys(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range stored {
			if key.State == keyring.Current {
				if err := elsewhere.Remove(t.Context(), key.KID, "admin"); err != nil {
					t.Fatal(err)
				}
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
		b.refused(what, send(), 503, "temporarily_unavailable")
	}
	if _, err := later.Reseal(t.Context(), "admin"); err != nil {
		t.Fatal(err)
	}
	for what, send := range sends {
		b.given(what+" afterwards", send())
	}
}
