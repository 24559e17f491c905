package app

import (
	"testing"

	"github.com/almonerhq/almoner/resourceapi/internal/gate/keystest"
	store "github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// Without keys every access token would be refused: a new process waits for them, and one that has cached keys stays
// ready.
func TestReady_RequiresSigningKeysOnce(t *testing.T) {
	s := &service{
		Fixture: postgrestest.NewWithJobs(t, store.MigrateJobs),
		t:       t,
		key:     keystest.NewKey(t, "key-1"),
		log:     &lockedBuffer{},
	}
	authserver := keystest.NewAuthserver(t, s.key)
	authserver.Answer(502, "")
	s.start(s.Database.Resourceapi, authserver.URL)
	ready := func() answer { return s.get("/readyz", nil) }
	s.unavailable(t, ready)
	authserver.Publish(s.key)
	s.eventually(t, 200, ready)
	authserver.Answer(502, "")
	if a := ready(); a.Status != 200 || a.Body != `{"keys":"ok","postgres":"ok"}`+"\n" {
		t.Errorf("%d %q", a.Status, a.Body)
	}
}
