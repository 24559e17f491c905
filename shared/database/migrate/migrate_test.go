package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must, connect = testkit.Must, testkit.Connect

// freshDatabase returns a database for a test's migrations, as the owner.
func freshDatabase(t *testing.T) (url string, owner session) {
	t.Helper()
	url = testkit.NewDatabase(t).Owner
	return url, session{connect(t, url), t}
}

// A session is a session of the owner of a test's database.
type session struct {
	*pgx.Conn
	t *testing.T
}

// exec runs statements.
func (s session) exec(statements ...string) {
	s.t.Helper()
	for _, statement := range statements {
		if _, err := s.Exec(s.t.Context(), statement); err != nil {
			s.t.Fatalf("%s: %v", statement, err)
		}
	}
}

// reads reports whether a query yields true.
func (s session) reads(sql string, args ...any) (is bool) {
	s.t.Helper()
	must(s.t, s.QueryRow(s.t.Context(), sql, args...).Scan(&is))
	return is
}

// begin begins a transaction with a statement.
func (s session) begin(sql string) pgx.Tx {
	s.t.Helper()
	tx, err := s.Begin(s.t.Context())
	must(s.t, err)
	_, err = tx.Exec(s.t.Context(), sql)
	must(s.t, err)
	return tx
}

// up checks that the migrations that Up applies are these.
func up(t *testing.T, m Migrations, url string, want ...string) {
	t.Helper()
	if applied, err := m.Up(t.Context(), url); err != nil || !slices.Equal(applied, want) {
		t.Fatalf("applied %v, want %v: %v", applied, want, err)
	}
}

const one, two = "00001_one.sql", "00002_two.sql"

// of makes migrations from SQL, numbered from 1.
func of(statements ...string) Migrations {
	files := fstest.MapFS{}
	for i, statement := range statements {
		name := []string{one, two, "00003_three.sql"}[i]
		files[name] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + statement + ";\n")}
	}
	return Migrations{Files: files, Table: "goose_trial"}
}

func TestLook_ReportsDifferenceAndChangesNothing(t *testing.T) {
	t.Parallel()
	url, owner := freshDatabase(t)
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
	if owner.reads("select to_regclass('goose_trial') is not null") {
		t.Error("Look created a table")
	}
	older := of("create table one (x int)")
	up(t, older, url, one)
	if status, words := look(all); status != StatusMissing ||
		!strings.Contains(words, "migrations are missing: 00002_two.sql;") {
		t.Errorf("%d %s", status, words)
	}
	up(t, all, url, two)
	if status, words := look(all); status != 0 {
		t.Errorf("%d %s", status, words)
	}
	if status, words := look(older); status != StatusNewer ||
		words != "the database is newer than this program: it has the unknown migrations 2" {
		t.Errorf("%d %s", status, words)
	}
	up(t, older, url) // an older program leaves the database as it is
	if _, err := all.Look(t.Context(), "postgres://user:hush@host:port:x/a"); err == nil ||
		strings.Contains(err.Error(), "hush") {
		t.Error(err)
	}
}

// A first migration that replaces earlier ones is applied to an empty database, and no longer to one that has only some
// of those that it replaces.
func TestUp_RefusesDatabaseBeforeFirstMigration(t *testing.T) {
	t.Parallel()
	url, owner := freshDatabase(t)
	base := Migrations{Table: "goose_trial", Files: fstest.MapFS{
		"00003_base.sql": {Data: []byte("-- +goose Up\ncreate table one (x int);\ncreate table two (x int);\n" +
			"insert into goose_trial (version_id, is_applied) values (1, true), (2, true);\n")},
		"00004_four.sql": {Data: []byte("-- +goose Up\nalter table two add column y int;\n")},
	}}
	replaced := of("create table one (x int)", "create table two (x int)", "alter table one add column y int")
	up(t, of("create table one (x int)", "create table two (x int)"), url, one, two)
	_, looked := base.Look(t.Context(), url)
	applied, err := base.Up(t.Context(), url)
	if !errors.Is(looked, ErrOlder) || !errors.Is(err, ErrOlder) || len(applied) > 0 {
		t.Errorf("%v; %v, %v", looked, applied, err)
	}
	up(t, replaced, url, "00003_three.sql")
	up(t, base, url, "00004_four.sql")
	owner.exec("drop table one, two, goose_trial")
	up(t, base, url, "00003_base.sql", "00004_four.sql")
	for _, m := range []Migrations{base, replaced} { // a program that has the replaced ones finds them
		missing, err := m.Missing(t.Context(), owner.Conn)
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
	url, owner := freshDatabase(t)
	all := of("create table one (x int)", "create table two (x int); alter table one add column y int")
	all.TryFor = time.Millisecond
	up(t, of("create table one (x int)"), url, one)
	reader := owner.begin("select from one")
	applied, err := all.Up(t.Context(), url)
	if err == nil || !strings.Contains(err.Error(), "run it again") || len(applied) > 0 {
		t.Errorf("%v, %v", applied, err)
	}
	must(t, reader.Rollback(t.Context()))
	if owner.reads("select to_regclass('two') is not null") {
		t.Error("part of a migration was committed")
	}
	up(t, all, url, two)
}

// TestUp_WaitsWithoutDelayingRequests checks that requests wait only briefly behind a migration that waits for a table
// in use, and that it is applied once the table is no longer in use.
func TestUp_WaitsWithoutDelayingRequests(t *testing.T) {
	t.Parallel()
	url, owner := freshDatabase(t)
	up(t, of("create table one (x int)"), url, one)
	other, reader := connect(t, url), owner.begin("select from one")
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
	url, owner := freshDatabase(t)
	up(t, of("create table one (x int)"), url, one)
	writer := owner.begin("insert into one (x) values (1)")
	all := of("create table one (x int)", "drop index concurrently if exists one_x", "create table three (x int)")
	all.Files.(fstest.MapFS)[two].Data = []byte("-- +goose NO TRANSACTION\n-- +goose Up\n" +
		"drop index concurrently if exists one_x;\ncreate index concurrently one_x on one (x);\n")
	all.TryFor = time.Second // less than the transaction lasts
	observer := session{connect(t, url), t}
	ended := make(chan error, 1)
	go func() {
		applied, err := all.Up(t.Context(), url)
		if len(applied) != 2 {
			err = fmt.Errorf("%v, %w", applied, err)
		}
		ended <- err
	}()
	await.True(t, "the index waits for longer than a migration that requests wait for", func() bool {
		return observer.reads(`select coalesce(max(clock_timestamp() - query_start), '0') > $1
			from pg_stat_activity where datname = current_database() and query ilike '%index concurrently%'
			and wait_event_type = 'Lock' and pid <> pg_backend_pid()`, 2*max(briefLockTimeout, all.TryFor))
	})
	must(t, writer.Rollback(t.Context()))
	must(t, <-ended)
}

func TestUp_ConcurrentCallsApplyEachMigrationOnce(t *testing.T) {
	t.Parallel()
	url, _ := freshDatabase(t)
	all := of("create table one (x int); select pg_sleep(0.5)", "create table two (x int)")
	var sum atomic.Int64
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			applied, err := all.Up(t.Context(), url)
			if err != nil {
				t.Error(err)
			}
			sum.Add(int64(len(applied)))
		})
	}
	group.Wait()
	if sum.Load() != 2 {
		t.Errorf("%d were applied", sum.Load())
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
		owner.exec(sql)
		if says(Options{}) {
			t.Errorf("said so without distributed tables, after %q", sql)
		}
	}
	owner.exec("insert into pg_dist_partition values ('pg_class')")
	if !says(Options{}) || says(Options{Distribute: true, Yes: true}) || says(Options{Check: true}) {
		t.Error("only migrate without flags must say so")
	}
}

// The functions that run on the nodes read the copy of a table by its current name, also if they have that of an
// earlier copy, and other names that begin with that of the table stay.
func TestApply_FunctionsReadCopiesOfTheirNode(t *testing.T) {
	t.Parallel()
	_, owner := freshDatabase(t)
	owner.exec(
		"create schema if not exists account",
		"create table account.copied (id int)",
		"create table account.copied_less (id int)",
		"create table pg_dist_shard (logicalrelid regclass, shardid bigint)", // of Citus
		"insert into pg_dist_shard values ('account.copied', 17), ('account.copied_less', 18)",
		`create function account.reads() returns void language plpgsql as $$ begin
			perform from account.copied c join account.copied_11 d using (id) join account.copied_less using (id);
		end $$`,
	)
	var said strings.Builder
	d := Distribution{Reference: []string{"account.copied"}, Functions: []string{"account.reads()"}}
	w := &distributing{Distribution: d, Owner: &Owner{Conn: owner.Conn, ctx: t.Context()}, out: &said}
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
	owner.exec(
		"create schema if not exists account",
		"create table account.moving (id int, at timestamptz)",
		"create table account.staying (id int, at timestamptz)",
		"grant insert (id), update (at) on account.moving, account.staying to almoner_authserver",
		"grant insert on account.staying to almoner_authserver", // by an earlier release
	)
	d := Distribution{Reference: []string{"account.moving"}}
	w := &distributing{Distribution: d, Owner: &Owner{Conn: owner.Conn, ctx: t.Context()}, out: io.Discard}
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
		has := owner.reads("select has_column_privilege('almoner_authserver', $1::text, $2::text, $3::text)",
			parts[0], parts[1], parts[2])
		if has != want {
			t.Errorf("%s: %v, want %v", privilege, has, want)
		}
	}
}
