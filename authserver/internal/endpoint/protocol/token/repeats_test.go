package token_test

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

const someKey = "an-unguessable-key"

// refreshWith refreshes with an Idempotency-Key.
func (b *testEnv) refreshWith(held apitest.Connection, key string, changes ...string) apitest.Answer {
	b.t.Helper()
	return b.FormWith(path, []string{"Idempotency-Key", key}, b.refreshForm(held.Refresh, changes...)...)
}

func (b *testEnv) exchangeWith(code credential.Secret, key string) apitest.Answer {
	b.t.Helper()
	return b.FormWith(path, []string{"Idempotency-Key", key}, b.exchangeForm(code)...)
}

func tokenIn(answer apitest.Answer) credential.Secret {
	return credential.Secret(answer.Text("refresh_token"))
}

// repeated requires the refresh token of first again, with a new access token.
func (b *testEnv) repeated(what string, first, again apitest.Answer) {
	b.t.Helper()
	b.given(what, first)
	b.given(what+" again", again)
	if first.Header.Get("Idempotency-Replayed") != "" || again.Header.Get("Idempotency-Replayed") != "true" ||
		again.Text("refresh_token") != first.Text("refresh_token") ||
		again.Text("access_token") == first.Text("access_token") || again.Text("scope") != first.Text("scope") {
		b.t.Errorf("%s: want the same refresh token and a new access token\n%s\n%s", what, b.Explain(first),
			b.Explain(again))
	}
}

func TestIdempotencyKey_RepeatsAnswer(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.Consent(b.app, b.user)
	first := b.exchangeWith(code, someKey)
	b.repeated("exchange", first, b.exchangeWith(code, someKey))
	held := b.Refreshed(b.app, apitest.Connection{Grant: g, Refresh: tokenIn(first)})
	b.repeated("refresh", b.refreshWith(held, someKey), b.refreshWith(held, someKey))
	b.wantActive("after repetitions", g)
	b.Wants("another key", b.refreshWith(held, someKey+"2"), 400, "invalid_grant")
	b.wantRevoked("another key", g, grant.Replayed)
	b.Wants("the same key, then", b.refreshWith(held, someKey), 400, "invalid_grant")
	// A public client proves nothing by its client_id: without a key, the second request is a replay.
	held = b.connected()
	b.given("without a key", b.refresh(held.Refresh))
	b.Wants("without a key, again", b.refresh(held.Refresh), 400, "invalid_grant")
	b.wantRevoked("without a key, again", held.Grant, grant.Replayed)
}

func TestIdempotencyKey_RepeatsConfidentialExchange(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.Consent(b.linked, b.user)
	send := func() apitest.Answer { return b.linkWith(code, "Idempotency-Key", someKey) }
	first := send()
	b.repeated("exchange", first, send())
	b.Equal("G5: the refresh token", first.Text("refresh_token"), "")
	b.wantActive("after the repetition", g)
	b.Wants("without the key", b.linkCode(code), 400, "invalid_grant")
	b.wantRevoked("without the key", g, grant.CodeReused)
}

// A malformed key is refused before anything is consumed.
func TestIdempotencyKey_MalformedIsRefused(t *testing.T) {
	b := newTestEnv(t)
	held := b.connected()
	for _, key := range []string{
		"", "fifteen-letters", "with a space in it", "with-a-\u00e9-in-it-xx", strings.Repeat("x", 256),
	} {
		b.Wants(key, b.refreshWith(held, key), 400, "invalid_request")
	}
	twice := []string{"Idempotency-Key", someKey, "Idempotency-Key", someKey}
	b.Wants("twice", b.FormWith(path, twice, b.refreshForm(held.Refresh)...), 400, "invalid_request")
	for _, key := range []string{strings.Repeat("!", 16), strings.Repeat("~", 255)} {
		answer := b.refreshWith(held, key)
		b.given(key[:1], answer)
		held.Refresh = tokenIn(answer)
	}
}
