package app

import (
	"testing"

	store "github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// Without keys every access token would be refused: a new process waits for them, and one that has cached keys stays
// ready.
func TestReady_RequiresSigningKeysOnce(t *testing.T) {
	t.Parallel()
	s := &service{
		Fixture: postgrestest.NewWithJobs(t, store.MigrateJobs),
		t:       t,
		key:     newKey(t, "key-1"),
		log:     &lockedBuffer{},
	}
	authserver := newAuthserver(t, s.key)
	authserver.answer(502, "")
	s.start(s.Database.Resourceapi, authserver.URL)
	ready := func() answer { return s.get("/readyz", nil) }
	requests{"ready": ready}.unavailable(t)
	authserver.publish(s.key)
	s.eventually(t, 200, ready)
	authserver.answer(502, "")
	if a := ready(); a.Status != 200 || a.Body != `{"keys":"ok","postgres":"ok"}`+"\n" {
		t.Errorf("%d %q", a.Status, a.Body)
	}
}
