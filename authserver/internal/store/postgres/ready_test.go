package postgres_test

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func TestReady_RequiresEveryMigration(t *testing.T) {
	t.Parallel()
	l := ownStoreTest(t)
	ready := func() error { return l.open(testkit.StoreWait).Ready(t.Context()) }
	if err := ready(); err != nil {
		t.Errorf("all migrations applied: %v", err)
	}
	l.fixture.Exec("insert into goose_authserver (version_id, is_applied) values (99999, true)") // by a newer program
	if err := ready(); err != nil {
		t.Errorf("newer schema: %v", err)
	}
	l.fixture.Exec("delete from goose_authserver where version_id = 331")
	if err := ready(); err == nil || !strings.Contains(err.Error(), "00331_proven_addresses_filled.sql") {
		t.Errorf("missing migration: %v", err)
	}
}

func TestReady_DoesNotWaitForCallersConnections(t *testing.T) {
	t.Parallel()
	l := ownStoreTest(t)
	release, err := l.TakeAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for _, when := range []string{"first, with the migrations", "later"} {
		if err := l.Ready(t.Context()); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	l.wantCount(16, "connections of a process (SCALING.md)", `select count(*) from pg_stat_activity
		where application_name = 'almoner-authserver' and datname = current_database()`)
}
