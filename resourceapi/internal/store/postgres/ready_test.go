package postgres

import (
	"errors"
	"testing"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/standing"
)

func TestReady_RequiresEveryMigration(t *testing.T) {
	t.Parallel()
	w := postgrestest.New(t)
	ready := func() error {
		return open(t, w).Ready(t.Context())
	}
	waits := func(what string) {
		t.Helper()
		if refused, ok := errors.AsType[*apierr.Error](ready()); !ok || refused.Kind != apierr.Unavailable {
			t.Errorf("%s: %v, want an unavailable service", what, refused)
		}
	}
	waits("without the job queue's tables")
	must(t, MigrateJobs(t.Context(), w.Database.Owner))
	if err := ready(); err != nil {
		t.Errorf("not ready with every migration: %v", err)
	}
	w.Exec("insert into goose_resourceapi (version_id, is_applied) values (99999, true)") // applied by a newer program
	if err := ready(); err != nil {
		t.Errorf("not ready on a newer schema: %v", err)
	}
	w.Exec("alter function " + standing.Function + " rename to later")
	waits("without authserver's migrations")
	w.Exec("alter function account.later rename to standings")
	w.Exec("alter function account.events_after rename to later")
	waits("without authserver's migration of events")
	w.Exec("alter function account.later rename to events_after")
	w.Exec("delete from goose_resourceapi where version_id = 160")
	waits("without a migration")
	w.Exec("revoke select on goose_resourceapi from almoner_resourceapi")
	waits("without the right to read")
}
