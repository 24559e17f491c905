package postgres

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/database/migrate"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// Before programmes are distributed, they write their events row by row again: the same events as before.
func TestDistribution_ProgrammesWriteSameEventsRowByRow(t *testing.T) {
	testkit.SkipIfDistributed(t, "it is distributed")
	t.Parallel()
	w, _ := ownStore(t)
	var d migrate.Distribution
	must(t, json.Unmarshal(distributionJSON, &d))
	events := func(triggers int) []string {
		workspaceID := w.Workspace()
		w.Wants(triggers, `select count(*) from pg_trigger
			where tgrelid = 'resource.programmes'::regclass and tgname like 'note%'`)
		for _, sql := range []string{
			`insert into resource.programmes (tenant_id, id, name, status)
				select $1, gen_random_uuid(), 'name ' || n, 'draft' from generate_series(1, 3) n`,
			`update resource.programmes set summary = 'changed' where tenant_id = $1 and name <> 'name 1'`,
			`update resource.programmes set updated_at = now() where tenant_id = $1`,
			`delete from resource.programmes where tenant_id = $1 and name <> 'name 2'`,
		} {
			w.Exec(sql, workspaceID)
		}
		connection := orFail(pgx.Connect(t.Context(), w.Database.Owner))(t)
		defer func() { _ = connection.Close(t.Context()) }()
		rows := orFail(connection.Query(t.Context(), `select type || ' ' || coalesce(data ->> 'changed', '')
			from account.events where tenant_id = $1 order by 1`, workspaceID))(t)
		return orFail(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
	}
	before := events(3)
	for range 2 {
		for _, sql := range d.First {
			w.Exec(sql)
		}
	}
	if after := events(1); len(after) != 7 || !slices.Equal(before, after) {
		t.Errorf("%q, before %q", after, before)
	}
}
