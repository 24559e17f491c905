package testkit

import (
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
)

// use makes a database, and returns its URLs and its identifier, which stays the same if the database is renamed.
func (t template) use(test *testing.T, name string) (db Database, oid uint32) {
	test.Helper()
	must(test, t.makeDatabase(test.Context(), name))
	db = t.database(name)
	err := connect(test, db.Superuser).QueryRow(test.Context(),
		"select oid from pg_database where datname = current_database()").Scan(&oid)
	must(test, err)
	return db, oid
}

func TestNewDatabase_ReusesOnlyUnchangedDatabases(t *testing.T) {
	made, err := ensureTemplate(t.Context(), ownServer(t)) // whose databases no other process takes
	must(t, err)
	t.Run("emptied", func(t *testing.T) { givesEmptiedDatabase(t, made) })
	t.Run("changed", func(t *testing.T) { dropsChangedDatabases(t, made) })
}

func givesEmptiedDatabase(t *testing.T, made template) {
	first, oid := made.use(t, "test_first")
	forgotten := connect(t, first.Owner) // a session that the first test did not close
	for _, sql := range []string{
		"insert into account.organisations (id, name) values (gen_random_uuid(), 'Here')",
		"insert into account.tenants (id, organisation_id, name) select gen_random_uuid(), id, '' || id " +
			"from account.organisations",
		"select nextval(pg_get_serial_sequence('account_jobs.river_job', 'id'))",
	} {
		if _, err := forgotten.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	must(t, made.endDatabase(t.Context(), "test_first", true))
	if _, err := pgx.Connect(t.Context(), first.Owner); codeOf(err) != "3D000" { // invalid_catalog_name
		t.Errorf("the first test connects after its end: %v", err)
	}

	second, again := made.use(t, "test_second")
	if again != oid {
		t.Error("the emptied database is not used")
	}
	var rows int
	var sequences []string
	session := connect(t, second.Superuser)
	err := errors.Join(
		session.QueryRow(t.Context(), "select (select count(*) from account.organisations) + "+
			"(select count(*) from account.tenants)").Scan(&rows),
		session.QueryRow(t.Context(), findSequences).Scan(&sequences),
	)
	if err != nil || rows != 0 || !slices.Equal(sequences, made.contents.Sequences) {
		t.Errorf("%d rows of the first test, sequences in use: %v, %v", rows, sequences, err)
	}
	if found, err := made.reuseDatabase(t.Context(), connect(t, made.server), "test_third"); err != nil || found {
		t.Errorf("two tests get one database: %t, %v", found, err)
	}
}

func dropsChangedDatabases(t *testing.T, made template) {
	for name, sql := range map[string]string{
		"table":          "create table account.extra (id int)",
		"dropped table":  "drop table account.finished_upgrades",
		"trigger":        "alter table account.users disable trigger all",
		"rights":         "revoke select on account.users from almoner_authserver",
		"default rights": "alter default privileges in schema account grant select on tables to test_resourceapi",
		"vacuum":         "vacuum account.users",
		"statistics":     "analyze pg_class",
		"migrations":     "delete from goose_authserver where version_id > 0",
		"sessions":       "alter database test_changed connection limit 0",
		"setting":        "alter database test_changed set work_mem = 64",
		"large table": `insert into account.organisations
			select gen_random_uuid(), repeat('x', 100) from generate_series(1, 1000)`,
	} {
		changed, _ := made.use(t, "test_changed")
		if _, err := connect(t, changed.Superuser).Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := made.endDatabase(t.Context(), "test_changed", true); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		found, err := made.reuseDatabase(t.Context(), connect(t, made.server), "test_next")
		if err != nil || found {
			t.Fatalf("%s: the next test gets the changed database: %t, %v", name, found, err)
		}
	}
}
