package settings_test

import (
	"sync"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

var shared, own = browsertest.Shared, browsertest.Own

// inSettings returns a new workspace, and a user who manages its API access and holds more, with their browser.
func inSettings(
	t *testing.T, more ...perm.Permission,
) (*browsertest.Server, browsertest.Person, *browsertest.Browser) {
	t.Helper()
	site := shared(t)
	ada := developer(site, more...)
	return site, ada, site.SignedIn(ada)
}

// events checks how many audit events of an action a user has, in any workspace or in none.
func events(site *browsertest.Server, want int, user browsertest.Person, action string) {
	site.CountIs(want, "select count(*) from account.audit_events where user_id = $1 and action = $2", user.ID, action)
}

// atOnce sends n requests at the same time.
func atOnce(n int, send func(i int) *browsertest.Page) []*browsertest.Page {
	pages := make([]*browsertest.Page, n)
	var all sync.WaitGroup
	for i := range pages {
		all.Go(func() { pages[i] = send(i) })
	}
	all.Wait()
	return pages
}

// connections makes n active grants of a user to a client, three of each minute before now.
func connections(site *browsertest.Server, app client.Client, user browsertest.Person, n int) {
	site.Fixture.Exec(`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource,
			state, created_at, ends_at, generation)
		select gen_random_uuid(), kind, id, $2, tenant_id, required_permissions, 'r', 'active',
			date_trunc('second', now()) - (n / 3) * interval '1 minute', now() + interval '9 days', 1
		from account.oauth_clients, generate_series(1, $3::int) n where id = $1`, app.ID, user.ID, n)
}
