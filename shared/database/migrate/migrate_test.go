package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must, connect = testkit.Must, testkit.Connect

// freshDatabase returns a database for a test's migrations, as the owner.
func freshDatabase(t *testing.T) (url string, connection *pgx.Conn) {
	t.Helper()
	url = testkit.NewDatabase(t).Owner
	return url, connect(t, url)
}

// of makes migrations from SQL, numbered from 1.
func of(statements ...string) Migrations {
	files := fstest.MapFS{}
	for i, statement := range statements {
		name := []string{"00001_one.sql", "00002_two.sql", "00003_three.sql"}[i]
		files[name] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + statement + ";\n")}
	}
	return Migrations{Files: files, Table: "goose_trial"}
}

func TestLook_ReportsDifferenceAndChangesNothing(t *testing.T) {
	t.Parallel()
	url, connection := freshDatabase(t)
	all := of("create table one (x int)", "create table two (x int)")
	look := func(m Migrations) (int, string) {
		t.Helper()
		state, err := m.Look(t.Context(), url)
		must(t, err)
		difference, ok := errors.AsType[State](state.Err())
		if !ok {
			return 0, ""
		}
		return difference.ExitStatus(), difference.Error()
	}
	if status, words := look(all); status != StatusMissing ||
		words != "migrations are missing: 00001_one.sql, 00002_two.sql; run migrate" {
		t.Errorf("%d %s", status, words)
	}
	var there bool
	err := connection.QueryRow(t.Context(), "select to_regclass('goose_trial') is not null").Scan(&there)
	if err != nil || there {
		t.Errorf("Look created a table, %v", err)
	}
	if applied, err := of("create table one (x int)").Up(t.Context(), url); err != nil ||
		!slices.Equal(applied, []string{"00001_one.sql"}) {
		t.Fatal(applied, err)
	}
	if status, words := look(all); status != StatusMissing ||
		!strings.Contains(words, "migrations are missing: 00002_two.sql;") {
		t.Errorf("%d %s", status, words)
	}
	if _, err := all.Up(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	if status, words := look(all); status != 0 {
		t.Errorf("%d %s", status, words)
	}
	older := of("create table one (x int)")
	if status, words := look(older); status != StatusNewer ||
		words != "the database is newer than this program: it has the unknown migrations 2" {
		t.Errorf("%d %s", status, words)
	}
	if applied, err := older.Up(t.Context(), url); err != nil ||
		len(applied) > 0 { // an older program leaves the database as it is
		t.Errorf("%v, %v", applied, err)
	}
	if _, err := all.Look(t.Context(), "postgres://user:hush@host:port:x/a"); err == nil ||
		strings.Contains(err.Error(), "hush") {
		t.Error(err)
	}
}

// A first migration that replaces earlier ones is applied to an empty database, and no longer to one that has only some
// of those that it replaces.
func TestUp_RefusesDatabaseBeforeFirstMigration(t *testing.T) {
	t.Parallel()
	url, connection := freshDatabase(t)
	base := Migrations{Table: "goose_trial", Files: fstest.MapFS{
		"00003_base.sql": {Data: []byte("-- +goose Up\ncreate table one (x int);\ncreate table two (x int);\n" +
			"insert into goose_trial (version_id, is_applied) values (1, true), (2, true);\n")},
		"00004_four.sql": {Data: []byte("-- +goose Up\nalter table two add column y int;\n")},
	}}
	replaced := of("create table one (x int)", "create table two (x int)", "alter table one add column y int")
	if _, err := of("create table one (x int)", "create table two (x int)").Up(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	_, looked := base.Look(t.Context(), url)
	applied, err := base.Up(t.Context(), url)
	if !errors.Is(looked, ErrOlder) || !errors.Is(err, ErrOlder) || len(applied) > 0 {
		t.Errorf("%v; %v, %v", looked, applied, err)
	}
	if _, err := replaced.Up(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	if applied, err := base.Up(t.Context(), url); err != nil || !slices.Equal(applied, []string{"00004_four.sql"}) {
		t.Errorf("%v, %v", applied, err)
	}
	if _, err := connection.Exec(t.Context(), "drop table one, two, goose_trial"); err != nil {
		t.Fatal(err)
	}
	if applied, err := base.Up(t.Context(), url); err != nil || len(applied) != 2 {
		t.Errorf("%v, %v", applied, err)
	}
	for _, m := range []Migrations{base, replaced} { // a program that has the replaced ones finds them
		missing, err := m.Missing(t.Context(), connection)
		if err != nil || len(missing) > 0 {
			t.Errorf("missing: %v, %v", missing, err)
		}
	}
	if state, err := base.Look(t.Context(), url); err != nil || state.Err() != nil {
		t.Errorf("%v, %v", state, err)
	}
}

func TestUp_LockTimeoutRollsBack(t *testing.T) {
	t.Parallel()
	url, connection := freshDatabase(t)
	all := of("create table one (x int)", "create table two (x int); alter table one add column y int")
	all.TryFor = time.Millisecond
	if _, err := of("create table one (x int)").Up(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	reader, err := connection.Begin(t.Context())
	if err == nil {
		_, err = reader.Exec(t.Context(), "select from one")
	}
	must(t, err)
	applied, err := all.Up(t.Context(), url)
	if err == nil || !strings.Contains(err.Error(), "run it again") || len(applied) > 0 {
		t.Errorf("%v, %v", applied, err)
	}
	must(t, reader.Rollback(t.Context()))
	var left bool
	if err := connection.QueryRow(t.Context(), "select to_regclass('two') is not null").Scan(&left); err != nil ||
		left {
		t.Errorf("part of a migration was committed, %v", err)
	}
	if applied, err := all.Up(t.Context(), url); err != nil || len(applied) != 1 {
		t.Errorf("%v, %v", applied, err)
	}
}

// TestUp_WaitsWithoutDelayingRequests checks that requests wait only briefly behind a migration that waits for a table
// in use, and that it is applied once the table is no longer in use.
func TestUp_WaitsWithoutDelayingRequests(t *testing.T) {
	t.Parallel()
	url, connection := freshDatabase(t)
	if _, err := of("create table one (x int)").Up(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	other := connect(t, url)
	reader, err := connection.Begin(t.Context())
	if err == nil {
		_, err = reader.Exec(t.Context(), "select from one")
	}
	must(t, err)
	ended := make(chan error, 1)
	all := of("create table one (x int)", "alter table one add column y int")
	all.TryFor = await.Long
	go func() {
		_, err := all.Up(t.Context(), url)
		ended <- err
	}()
	limited, cancel := context.WithTimeout(t.Context(), await.Long)
	defer cancel()
	await.True(t, "a request waits for about "+briefLockTimeout.String()+" behind the migration", func() bool {
		asked := time.Now()
		if _, err := other.Exec(limited, "insert into one (x) values (1)"); err != nil {
			t.Fatal(err)
		}
		wait := time.Since(asked)
		return wait > briefLockTimeout/2 && wait <= 2*briefLockTimeout // a busy machine delays single requests
	})
	must(t, reader.Rollback(t.Context()))
	if err := <-ended; err != nil {
		t.Errorf("not applied: %v", err)
	}
}

// A migration that creates an index waits for the transactions that began before it.
func TestUp_IndexWaitsForLongTransaction(t *testing.T) {
	t.Parallel()
	url, connection := freshDatabase(t)
	if _, err := of("create table one (x int)").Up(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	writer, err := connection.Begin(t.Context())
	if err == nil {
		_, err = writer.Exec(t.Context(), "insert into one (x) values (1)")
	}
	must(t, err)
	all := of("create table one (x int)", "drop index concurrently if exists one_x", "create table three (x int)")
	all.Files.(fstest.MapFS)["00002_two.sql"].Data = []byte("-- +goose NO TRANSACTION\n-- +goose Up\n" +
		"drop index concurrently if exists one_x;\ncreate index concurrently one_x on one (x);\n")
	all.TryFor = time.Second // less than the transaction lasts
	observer := connect(t, url)
	ended := make(chan error, 1)
	go func() {
		applied, err := all.Up(t.Context(), url)
		if len(applied) != 2 {
			err = fmt.Errorf("%v, %w", applied, err)
		}
		ended <- err
	}()
	await.True(t, "the index waits for longer than a migration that requests wait for", func() (waits bool) {
		must(t, observer.QueryRow(t.Context(), `select coalesce(max(clock_timestamp() - query_start), '0') > $1
			from pg_stat_activity where datname = current_database() and query ilike '%index concurrently%'
			and wait_event_type = 'Lock' and pid <> pg_backend_pid()`,
			2*max(briefLockTimeout, all.TryFor)).Scan(&waits))
		return waits
	})
	must(t, writer.Rollback(t.Context()))
	must(t, <-ended)
}

func TestUp_ConcurrentCallsApplyEachMigrationOnce(t *testing.T) {
	t.Parallel()
	url, _ := freshDatabase(t)
	all := of("create table one (x int); select pg_sleep(0.5)", "create table two (x int)")
	type result struct {
		applied []string
		err     error
	}
	results := make(chan result, 3)
	for range cap(results) {
		go func() {
			applied, err := all.Up(t.Context(), url)
			results <- result{applied, err}
		}()
	}
	sum := 0
	for range cap(results) {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
		}
		sum += len(r.applied)
	}
	if sum != 2 {
		t.Errorf("%d were applied", sum)
	}
}

func TestApply_NeedsCitus(t *testing.T) {
	t.Parallel()
	url, _ := freshDatabase(t)
	var said strings.Builder
	err := Distribute(t.Context(), url, []byte(`{"Reference": ["account.tenants"]}`), &said)
	if !errors.Is(err, ErrNoCitus) || said.String() != "" {
		t.Errorf("%v, %q", err, said.String())
	}
}

// The command calls nothing of the service: its functions are nil.
func TestCommand_DistributesOnlyWithYes(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	err := Command{}.Run(Options{Distribute: true}, &said)
	if !errors.Is(err, ErrUnconfirmed) || said.String() != "" {
		t.Errorf("%v, %q", err, said.String())
	}
}

// On a distributed database, migrate says what is left to do.
func TestCommand_MigrateOfDistributedTablesSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	url, owner := freshDatabase(t)
	command := Command{
		Schema:      "account",
		State:       func() (State, error) { return State{}, nil },
		Up:          func() ([]string, error) { return nil, nil },
		Distribute:  func() error { return nil },
		Distributed: func() (bool, error) { return IsDistributed(t.Context(), url) },
	}
	says := func(options Options) bool {
		t.Helper()
		var said strings.Builder
		must(t, command.Run(options, &said))
		return strings.Contains(said.String(), "Now run migrate --distribute --yes")
	}
	for _, sql := range []string{"", "create table pg_dist_partition (logicalrelid regclass)"} {
		if _, err := owner.Exec(t.Context(), sql); err != nil || says(Options{}) {
			t.Errorf("said so without distributed tables, or %v", err)
		}
	}
	_, err := owner.Exec(t.Context(), "insert into pg_dist_partition values ('pg_class')")
	must(t, err)
	if !says(Options{}) || says(Options{Distribute: true, Yes: true}) || says(Options{Check: true}) {
		t.Error("only migrate without flags must say so")
	}
}

// The functions that run on the nodes read the copy of a table by its current name, also if they have that of an
// earlier copy, and other names that begin with that of the table stay.
func TestApply_FunctionsReadCopiesOfTheirNode(t *testing.T) {
	t.Parallel()
	_, owner := freshDatabase(t)
	for _, statement := range []string{
		"create schema if not exists account",
		"create table account.copied (id int)",
		"create table account.copied_less (id int)",
		"create table pg_dist_shard (logicalrelid regclass, shardid bigint)", // of Citus
		"insert into pg_dist_shard values ('account.copied', 17), ('account.copied_less', 18)",
		`create function account.reads() returns void language plpgsql as $$ begin
			perform from account.copied c join account.copied_11 d using (id) join account.copied_less using (id);
		end $$`,
	} {
		if _, err := owner.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	var said strings.Builder
	w := &distributing{
		Distribution: Distribution{Reference: []string{"account.copied"}, Functions: []string{"account.reads()"}},
		Owner:        &Owner{Conn: owner, ctx: t.Context()},
		out:          &said,
	}
	w.readOwnCopies()
	w.readOwnCopies() // changes nothing
	var source string
	w.Read(&source, "select prosrc from pg_proc where proname = 'reads'")
	const want = "from account.copied_17 c join account.copied_17 d using (id) join account.copied_less using (id)"
	if w.err != nil || !strings.Contains(source, want) || strings.Count(said.String(), "made ") != 1 {
		t.Errorf("%v: %s\n%s", w.err, source, said.String())
	}
}

// A table that Citus does not convert keeps its privileges on columns: the service cannot choose the time of an audit
// event, not even after an earlier release distributed the tables.
func TestApply_KeepsPrivilegesOnColumnsOfOtherTables(t *testing.T) {
	t.Parallel()
	_, owner := freshDatabase(t)
	exec := func(statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if _, err := owner.Exec(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	}
	exec(
		"create schema if not exists account",
		"create table account.moving (id int, at timestamptz)",
		"create table account.staying (id int, at timestamptz)",
		"grant insert (id), update (at) on account.moving, account.staying to almoner_authserver",
		"grant insert on account.staying to almoner_authserver", // by an earlier release
	)
	w := &distributing{
		Distribution: Distribution{Reference: []string{"account.moving"}},
		Owner:        &Owner{Conn: owner, ctx: t.Context()},
		out:          io.Discard,
	}
	w.readColumnGrants()
	w.grantColumns()
	if w.err != nil {
		t.Fatal(w.err)
	}
	for privilege, want := range map[string]bool{
		"account.moving, at, insert":  true,
		"account.moving, at, update":  true,
		"account.moving, id, update":  false,
		"account.staying, id, insert": true,
		"account.staying, at, insert": false,
		"account.staying, at, update": true,
	} {
		parts := strings.Split(privilege, ", ")
		var has bool
		err := owner.QueryRow(t.Context(),
			"select has_column_privilege('almoner_authserver', $1::text, $2::text, $3::text)",
			parts[0], parts[1], parts[2]).Scan(&has)
		if err != nil || has != want {
			t.Errorf("%s: %v, want %v: %v", privilege, has, want, err)
		}
	}
}
