package token_test

import (
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/seal"
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
