package e2e

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// keysWithoutWorkspace are the tables with tenant_id whose primary key does not contain it, each with the reason.
var keysWithoutWorkspace = map[string]string{
	"account.endings":                "a row is found by its id; every node of a distributed database has a copy",
	"account.oauth_clients":          "connectors have no workspace; every node of a distributed database has a copy",
	"account.personal_access_tokens": "tokens are found by their hash; every node of a distributed database has a copy",
}

// A distributed database needs the workspace in the primary key of a table that it distributes by workspace.
func TestSchema_KeysContainWorkspace(t *testing.T) {
	t.Parallel()
	db, err := pgx.Connect(t.Context(), testkit.NewDatabase(t).Owner)
	must(t, err)
	defer func() { _ = db.Close(context.WithoutCancel(t.Context())) }()
	rows, err := db.Query(t.Context(), `
select c.oid::regclass::text,
  exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary and a.attnum = any (i.indkey))
from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped
where c.relnamespace in ('account'::regnamespace, 'resource'::regnamespace)
  and c.relkind in ('r', 'p') and not c.relispartition`)
	must(t, err)
	var seen []string
	var table string
	var contained bool
	_, err = pgx.ForEachRow(rows, []any{&table, &contained}, func() error {
		seen = append(seen, table)
		if reason, listed := keysWithoutWorkspace[table]; contained == listed {
			t.Errorf("%s: tenant_id is in the primary key: %t; keysWithoutWorkspace says %q", table, contained, reason)
		}
		return nil
	})
	must(t, err)
	for table := range keysWithoutWorkspace {
		if !slices.Contains(seen, table) {
			t.Errorf("%s is listed and does not exist", table)
		}
	}
	if !slices.Contains(seen, "account.grants") || !slices.Contains(seen, "resource.programmes") {
		t.Errorf("only these tables were found: %v", seen)
	}
}
