package settings_test

import (
	"sync"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

var shared, own = browsertest.Shared, browsertest.Own

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
