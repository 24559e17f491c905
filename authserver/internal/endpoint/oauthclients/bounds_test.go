package oauthclients_test

import (
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/perm"
)

// The contract's limits for one credential (section 6), at the real routes.
func TestBounds_OneCredentialHas64InFlightAnd8Handled(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	first := b.send("GET", b.path(), "")
	if first.Status != 200 || first.Header.Get("RateLimit") != `"requests-in-flight";r=63` ||
		first.Header.Get("RateLimit-Policy") != `"requests-in-flight";q=64;qu="concurrent-requests"` {
		t.Errorf("%d %v", first.Status, first.Header)
	}
	hold, err := b.Fixture.Owner.Begin(t.Context()) // blocks every request that is being handled
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hold.Rollback(t.Context()) }()
	if _, err := hold.Exec(t.Context(), "lock table account.oauth_clients in access exclusive mode"); err != nil {
		t.Fatal(err)
	}

	const allowed, beyond = 64, 5
	answers := make(chan apitest.Answer, allowed+beyond)
	for i := range allowed + beyond {
		method, path, body := "GET", b.path(), ""
		if i%2 == 0 {
			method, body = "POST", confidential(nil)
		}
		go func() { answers <- b.send(method, path, body) }()
	}
	refused := 0
	for i := range allowed + beyond {
		answer := <-answers
		if i == 0 {
			const waiting = `select count(*) from pg_locks
				where relation = 'account.oauth_clients'::regclass and not granted`
			n := b.Count(waiting)
			for tries := 0; n == 0 && tries < 1000; tries++ { // a refusal can come before the first statement
				n = b.Count(waiting)
			}
			if n == 0 || n > 8 {
				t.Errorf("%d requests of one credential are handled at once, want 1 to 8", n)
			}
		}
		if answer.Status == 503 { // after its wait for the lock
			continue
		}
		refused++
		nested, _ := answer.JSON()["error"].(map[string]any)
		if answer.Status != 429 || nested["code"] != "RATE_LIMITED" || answer.Header.Get("Retry-After") != "1" ||
			answer.Header.Get("RateLimit") != `"requests-in-flight";r=0` {
			t.Errorf("%d %v %s", answer.Status, answer.Header, answer.Body)
		}
	}
	if refused != beyond {
		t.Errorf("%d are refused, want %d", refused, beyond)
	}
	if err := hold.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := b.send("GET", b.path(), ""); after.Status != 200 {
		t.Errorf("afterwards: %d %s", after.Status, after.Body)
	}
	other := b.Send("GET", b.path(), "", apitest.Bearer(b.Fixture.Token(b.registrar, perm.AccountAPIAccess))...)
	if other.Header.Get("RateLimit") != `"requests-in-flight";r=63` {
		t.Errorf("another credential has %q left", other.Header.Get("RateLimit"))
	}
}
