package postgres_test

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func TestReady_RequiresEveryMigration(t *testing.T) {
	t.Parallel()
	f := fixture.New(t)
	ready := func() error {
		database := postgres.Only(credential.Secret(f.Database.Authserver))
		store, err := postgres.Open(t.Context(), database, testkit.StoreWait)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		return store.Ready(t.Context())
	}
	if err := ready(); err != nil {
		t.Errorf("all migrations applied: %v", err)
	}
	f.Exec("insert into goose_authserver (version_id, is_applied) values (99999, true)") // by a newer program
	if err := ready(); err != nil {
		t.Errorf("newer schema: %v", err)
	}
	f.Exec("delete from goose_authserver where version_id = 331")
	if err := ready(); err == nil || !strings.Contains(err.Error(), "00331_proven_addresses_filled.sql") {
		t.Errorf("missing migration: %v", err)
	}
}

func TestReady_DoesNotWaitForCallersConnections(t *testing.T) {
	t.Parallel()
	f := fixture.New(t)
	database := postgres.Only(credential.Secret(f.Database.Authserver))
	store, err := postgres.Open(t.Context(), database, testkit.StoreWait)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	release, err := store.TakeAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for _, when := range []string{"first, with the migrations", "later"} {
		if err := store.Ready(t.Context()); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	var connections int
	const ours = `select count(*) from pg_stat_activity
		where application_name = 'almoner-authserver' and datname = current_database()`
	if err := f.Owner.QueryRow(t.Context(), ours).Scan(&connections); err != nil || connections != 16 {
		t.Errorf("a process has %d connections, want 16 (SCALING.md), %v", connections, err)
	}
}
