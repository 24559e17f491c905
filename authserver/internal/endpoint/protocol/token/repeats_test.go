package token_test

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

const someKey = "an-unguessable-key"

// refreshWith refreshes with an Idempotency-Key.
func (b *testEnv) refreshWith(held apitest.Connection, key string) apitest.Answer {
	b.t.Helper()
	return b.FormWith(
		path,
		[]string{"Idempotency-Key", key},
		"grant_type", "refresh_token",
		"client_id", b.app.ID.String(),
		"resource", b.app.Resource,
		"refresh_token", held.Refresh.Reveal(),
	)
}

func (b *testEnv) exchangeWith(code, key string) apitest.Answer {
	b.t.Helper()
	return b.FormWith(
		path,
		[]string{"Idempotency-Key", key},
		"grant_type", "authorization_code",
		"client_id", b.app.ID.String(),
		"resource", b.app.Resource,
		"code", code,
		"code_verifier", apitest.Verifier,
		"redirect_uri", fixture.Callback,
	)
}

func tokenIn(answer apitest.Answer) credential.Secret {
	return credential.Secret(answer.Text("refresh_token"))
}

// repeated requires the refresh token of first again, with a new access token.
func (b *testEnv) repeated(what string, first, again apitest.Answer) {
	b.t.Helper()
	if first.Status != 200 || first.Header.Get("Idempotency-Replayed") != "" {
		b.t.Fatalf("%s: at first %d %s", what, first.Status, first.Header)
	}
	if again.Status != 200 || again.Text("refresh_token") != first.Text("refresh_token") ||
		again.Text("access_token") == first.Text("access_token") ||
		again.Header.Get("Idempotency-Replayed") != "true" ||
		again.Text("scope") != first.Text("scope") {
		b.t.Errorf("%s: %d %s %s", what, again.Status, again.Text("error_description"), again.Header)
	}
}

func TestIdempotencyKey_RepeatsAnswer(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, code := b.Consent(b.app, b.user)
	first := b.exchangeWith(code.Reveal(), someKey)
	b.repeated("exchange", first, b.exchangeWith(code.Reveal(), someKey))
	held := b.Refreshed(b.app, apitest.Connection{Grant: g, Refresh: tokenIn(first)})
	first = b.refreshWith(held, someKey)
	b.repeated("refresh", first, b.refreshWith(held, someKey))
	b.wantActive("after repetitions", g)
	b.refused("another key", b.refreshWith(held, someKey+"2"), 400, "invalid_grant")
	b.wantRevoked("another key", g, grant.Replayed)
	b.refused("the same key, then", b.refreshWith(held, someKey), 400, "invalid_grant")
	if strings.Contains(b.Log.String(), someKey) {
		t.Error("a key is in the log")
	}
}

func TestIdempotencyKey_RepeatsConfidentialExchange(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, code := b.Consent(b.linked, b.user)
	send := func(key string) apitest.Answer {
		body := `{"client_id":"` + b.linked.ID.String() + `","client_secret":"` + b.secret.Reveal() + `","code":"` +
			code.Reveal() + `","redirect_uri":"` + fixture.Callback + `"}`
		return b.Send("POST", path, body, "Content-Type", "application/json", "Idempotency-Key", key)
	}
	first := send(someKey)
	b.repeated("exchange", first, send(someKey))
	if first.Text("refresh_token") != "" {
		t.Error("G5: a refresh token was issued")
	}
	b.wantActive("after the repetition", g)
	b.refused("without the key", b.linkCode(code), 400, "invalid_grant")
	b.wantRevoked("without the key", g, grant.CodeReused)
}

// A malformed key is refused before anything is consumed.
func TestIdempotencyKey_MalformedIsRefused(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	for _, key := range []string{
		"", "fifteen-letters", "with a space in it", "with-a-\u00e9-in-it-xx", strings.Repeat("x", 256),
	} {
		b.refused(key, b.refreshWith(held, key), 400, "invalid_request")
	}
	twice := b.FormWith(path, []string{"Idempotency-Key", someKey, "Idempotency-Key", someKey},
		"grant_type", "refresh_token", "client_id", b.app.ID.String(), "resource", b.app.Resource,
		"refresh_token", held.Refresh.Reveal())
	b.refused("twice", twice, 400, "invalid_request")
	for _, key := range []string{strings.Repeat("!", 16), strings.Repeat("~", 255)} {
		answer := b.refreshWith(held, key)
		b.given(key[:1], answer)
		held.Refresh = tokenIn(answer)
	}
}

// A fresh assertion proves who sends the request, so no key is needed. A key takes precedence.
func TestAssertion_RepeatsAnswer(t *testing.T) {
	t.Parallel()
	d := newSigner(t)
	same := func(what string, first, again apitest.Answer) {
		t.Helper()
		d.wants(what, first, 200, "")
		d.wants(what, again, 200, "")
		if first.Text("refresh_token") != again.Text("refresh_token") ||
			again.Header.Get("Idempotency-Replayed") != "" {
			t.Errorf("%s: the refresh token differs, or %v", what, again.Header)
		}
	}
	g, code := d.code()
	first := d.exchange(code, d.proof(d.key)...)
	same("exchange", first, d.exchange(code, d.proof(d.key)...))
	token := first.Text("refresh_token")
	second := d.refresh(token, d.proof(d.key)...)
	same("refresh", second, d.refresh(token, d.proof(d.key)...))
	d.wants("without an assertion", d.refresh(token), 400, "invalid_client")
	if d.Stored(g).State != grant.Active {
		t.Fatal("a request without an assertion ended the grant")
	}
	d.wants("after its use", d.refresh(second.Text("refresh_token"), d.proof(d.key)...), 200, "")
	d.wants("the used one", d.refresh(token, d.proof(d.key)...), 400, "invalid_grant")
	if d.Stored(g).State != grant.Revoked {
		t.Error("a replay did not end the grant")
	}
}

// A public client proves nothing by its client_id: without a key, the second request is a replay.
func TestIdempotencyKey_PublicClientNeedsOne(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	b.given("refresh", b.refresh(held.Refresh))
	if b.app.AuthMethod == client.PrivateKeyJWT {
		t.Fatal("the connector signs")
	}
	b.refused("again", b.refresh(held.Refresh), 400, "invalid_grant")
	b.wantRevoked("again", held.Grant, grant.Replayed)
}
