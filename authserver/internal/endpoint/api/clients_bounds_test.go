package api_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// The contract's limits for one credential (section 6), at the real routes.
func TestBounds_OneCredentialHas64InFlightAnd8Handled(t *testing.T) {
	b := ownTestEnv(t, func(c *app.Config, _ string) { c.StoreWait = await.Long }) // for the lock
	first := b.send("GET", clients, "")
	if first.Status != 200 || first.Header.Get("RateLimit") != `"requests-in-flight";r=63` ||
		first.Header.Get("RateLimit-Policy") != `"requests-in-flight";q=64;qu="concurrent-requests"` {
		t.Errorf("%d %v", first.Status, first.Header)
	}
	await.True(t, "the last request arrives before the first has waited too long", func() bool {
		return refusesBeyond64(t, b)
	})
	b.Wants("afterwards", b.send("GET", clients, ""), 200, "")
	other := b.with(b.Fixture.Token(b.manager, perm.AccountAPIAccess))
	b.WantsHeader("another credential", other, "RateLimit", `"requests-in-flight";r=63`)
}

// refusesBeyond64 sends 69 requests, of which the first 64 are held until the others have been refused. It reports
// false if a request was refused because it waited for its turn for too long.
func refusesBeyond64(t *testing.T, b *testEnv) bool {
	t.Helper()
	// Blocks every request that is being handled.
	release := b.Lock("lock table account.oauth_clients in access exclusive mode")
	defer release()
	const allowed, beyond = 64, 5
	answers := make(chan apitest.Answer, allowed+beyond)
	for i := range allowed + beyond {
		method, body := "GET", ""
		if i%2 == 0 {
			method, body = "POST", confidential(nil)
		}
		go func() { answers <- b.send(method, clients, body) }()
	}
	var early []apitest.Answer
	for range beyond {
		early = append(early, <-answers)
	}
	var handled int
	await.True(t, "a request is handled", func() bool { // a refusal can come before the first statement
		handled = b.Count(`select count(*) from ` + testkit.Locks + `
			where relation = 'account.oauth_clients'::regclass and not granted`)
		return handled > 0
	})
	if handled > 8 {
		t.Errorf("%d requests of one credential are handled at once, want 1 to 8", handled)
	}
	release()
	inTime := true
	for range allowed {
		answer := <-answers
		inTime = inTime && !strings.Contains(answer.Body, "take too long")
		if inTime && (answer.Status == 429 || answer.Status >= 500) {
			t.Errorf("one of the first %d: %d %s", allowed, answer.Status, answer.Body)
		}
	}
	for _, answer := range early {
		if inTime = inTime && !strings.Contains(answer.Body, "take too long"); !inTime {
			return false
		}
		nested, _ := answer.Object()["error"].(map[string]any)
		if answer.Status != 429 || nested["code"] != "RATE_LIMITED" || answer.Header.Get("Retry-After") != "1" ||
			answer.Header.Get("RateLimit") != `"requests-in-flight";r=0` {
			t.Errorf("%d %v %s", answer.Status, answer.Header, answer.Body)
		}
	}
	return true
}

// Lists of applications are read whole, so their number is limited.
func TestBounds_WorkspaceHas1000Applications(t *testing.T) {
	b := ownTestEnv(t, func(c *app.Config, _ string) { c.StoreWait = await.Long }) // for the lock
	b.Fixture.Exec(`insert into account.oauth_clients (id, kind, tenant_id, name, redirect_uris, required_permissions,
			token_endpoint_auth_method)
		select gen_random_uuid(), 'confidential', $1, 'Rota', '{https://rota.example/cb}', '{}', 'client_secret_post'
		from generate_series(1, $2)`, b.Fixture.WorkspaceID, client.MaxInWorkspace-1)
	// Blocks each registration after its client is inserted.
	release := b.Lock("lock table account.client_secrets in access exclusive mode")
	statuses := make([]int, 4)
	var all sync.WaitGroup
	for i := range statuses { // the changes of one user wait for each other
		user := b.Fixture.Member(perm.AccountAPIAccess, perm.ProgrammesRead)
		token := b.Fixture.Token(user, perm.AccountAPIAccess, perm.ProgrammesRead)
		all.Go(func() { statuses[i] = b.as(token, "POST", clients, confidential(nil)).Status })
	}
	await.True(t, "all registrations wait", func() bool {
		return b.Count(`select count(*) from `+testkit.Locks+`
			where relation = 'account.client_secrets'::regclass and not granted`) == len(statuses)
	})
	release()
	all.Wait()
	if slices.Sort(statuses); !slices.Equal(statuses, []int{201, 409, 409, 409}) {
		t.Fatalf("the last one, requested four times at once: status %d", statuses)
	}
	if beyond := b.send("POST", clients, confidential(nil)); beyond.Status != 409 ||
		!strings.Contains(string(beyond.Body), "1,000 applications") {
		t.Errorf("one more: status %d", beyond.Status)
	}
	b.Fixture.Exec(`update account.oauth_clients set deleted_at = now()
		where id = (select id from account.oauth_clients where tenant_id = $1 limit 1)`, b.Fixture.WorkspaceID)
	b.Wants("after one was deleted", b.send("POST", clients, confidential(nil)), 201, "")
}
