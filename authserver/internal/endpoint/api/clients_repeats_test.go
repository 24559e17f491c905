package api_test

import (
	"sync"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// once sends a request with an Idempotency-Key.
func (b *clientsEnv) once(key, method, path, body string) apitest.Answer {
	b.t.Helper()
	headers := append(apitest.Bearer(b.token), "Idempotency-Key", key)
	if body != "" {
		headers = append(headers, "Content-Type", "application/json")
	}
	return b.Send(method, path, body, headers...)
}

// repeats checks that again is the stored answer first, marked as a repetition.
func (b *clientsEnv) repeats(what string, first, again apitest.Answer) {
	b.t.Helper()
	if first.Status/100 != 2 || again.Status != first.Status || again.Body != first.Body ||
		again.Header.Get("Location") != first.Header.Get("Location") ||
		first.Header.Get("Idempotency-Replayed") != "" || again.Header.Get("Idempotency-Replayed") != "true" {
		b.t.Errorf("%s: %d %s, then %d %s", what, first.Status, first.Body, again.Status, again.Body)
	}
}

// A repeated write takes effect once, and its secret is stored sealed.
func TestRepeat_WriteTakesEffectOnce(t *testing.T) {
	b := newClientsEnv(t)
	registration := confidential(nil)
	first := b.once("a", "POST", b.path(), registration)
	b.repeats("registration", first, b.once("a", "POST", b.path(), registration))
	one := b.path() + "/" + first.Text("clientId")
	secret := b.once("a", "POST", one+"/secret", "")
	b.repeats("secret", secret, b.once("a", "POST", one+"/secret", ""))
	if secret.Text("clientSecret") == first.Text("clientSecret") {
		t.Error("the secret was not replaced")
	}
	if n := b.Count(`select count(*) from account.client_secrets`); n != 2 {
		t.Errorf("%d secrets", n)
	}
	if n := b.Count(`select count(*) from account.idempotency_keys
		where position('alm_cs_'::bytea in body) > 0`); n != 0 {
		t.Error("a secret is stored in the clear")
	}
	if other := b.once("a", "POST", b.path(), confidential(fields{"name": "Other"})); other.Status != 409 ||
		other.Text("error") != "conflict" {
		t.Errorf("another body: %d %s", other.Status, other.Body)
	}
	b.repeats("deletion", b.once("a", "DELETE", one, ""), b.once("a", "DELETE", one, ""))
	if n := b.Count(`select count(*) from account.oauth_clients`); n != 1 {
		t.Errorf("%d clients", n)
	}
}

// A stored answer is repeated to a caller who may still do what it needed, and one with a secret to its credential
// alone.
func TestRepeat_NeedsPermissionAndForSecretsTheCredential(t *testing.T) {
	b := newClientsEnv(t)
	mine, registration := b.token, confidential(nil)
	first := b.once("a", "POST", b.path(), registration)
	one := b.path() + "/" + first.Text("clientId")
	secret := b.once("a", "POST", one+"/secret", "")
	public := b.once("b", "POST", b.path(), connector(nil))

	b.token = b.Fixture.Token(b.registrar, perm.AccountAPIAccess)
	b.forbidden("registration, a weaker token", b.once("a", "POST", b.path(), registration))
	b.forbidden("connector, a weaker token", b.once("b", "POST", b.path(), connector(nil)))
	b.refused("secret, a weaker token", b.once("a", "POST", one+"/secret", ""), 409, "conflict")
	b.token = b.Fixture.Token(b.registrar, perm.AccountAPIAccess, perm.ProgrammesRead)
	b.refused("registration, another token", b.once("a", "POST", b.path(), registration), 409, "conflict")
	b.refused("secret, another token", b.once("a", "POST", one+"/secret", ""), 409, "conflict")
	b.repeats("no secret, another token", public, b.once("b", "POST", b.path(), connector(nil)))

	b.token = mine
	b.repeats("the same token", first, b.once("a", "POST", b.path(), registration))
	b.repeats("the same token's secret", secret, b.once("a", "POST", one+"/secret", ""))
	b.Fixture.Exec(`update account.idempotency_keys set needs = null, credential_id = null`) // as the former release
	b.repeats("an answer of the former release", first, b.once("a", "POST", b.path(), registration))
	again := b.once("c", "POST", b.path(), registration)
	b.Fixture.Exec(
		`update account.memberships set permissions = '{account:api:access}' where user_id = $1`,
		b.registrar,
	)
	b.forbidden("after the permission was lost", b.once("c", "POST", b.path(), registration))
	if n := b.Count(`select count(*) from account.oauth_clients`); n != 3 || again.Status != 201 {
		t.Errorf("%d clients, %d", n, again.Status)
	}
}

// Only one of several concurrent requests with the same key takes effect. All get its answer.
func TestRepeat_ConcurrentRequestsGetOneAnswer(t *testing.T) {
	b := newClientsEnv(t)
	answers := make([]apitest.Answer, 8)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i] = b.once("a", "POST", b.path(), confidential(nil)) })
	}
	all.Wait()
	for _, a := range answers {
		if a.Status != 201 || a.Body != answers[0].Body {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	if n := b.Count(`select count(*) from account.oauth_clients`); n != 1 {
		t.Errorf("%d clients", n)
	}
}
