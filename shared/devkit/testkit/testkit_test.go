package testkit

import (
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

var must, connect = Must, Connect

const refused = "42501" // insufficient_privilege

func codeOf(err error) string {
	var fault *pgconn.PgError
	if errors.As(err, &fault) {
		return fault.Code
	}
	return ""
}

func TestNewDatabase_RolesReachOnlyTheirSchema(t *testing.T) {
	db := NewDatabase(t)
	for _, c := range []struct{ url, sql, code string }{
		{db.Authserver, "select * from account.tenants", ""},
		{db.Authserver, "select * from resource.programmes", refused},
		{db.Authserver, "update account.audit_events set actor = ''", refused},
		{db.Resourceapi, "select * from resource.programmes", ""},
		{db.Resourceapi, "select * from account.tenants", refused},
		{db.Resourceapi, "select * from account.standing('\\x00', null, null, '')", ""},
		{db.Owner, "create table account.extra (id int)", ""},
		{db.Owner, "alter system set work_mem = '1MB'", refused},
		{db.Superuser, "select * from pg_authid", ""},
	} {
		if _, err := connect(t, c.url).Exec(t.Context(), c.sql); codeOf(err) != c.code || (c.code == "" && err != nil) {
			t.Errorf("%s: %v, want code %q", c.sql, err, c.code)
		}
	}
}

// ownServer starts a server for this test only: other tests copy the shared template, so it must not be
// touched.
func ownServer(t *testing.T) string {
	t.Helper()
	dir, err := localstore.TempDir("almoner-testkit-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server, err := localstore.StartPostgres(t.Context(),
		localstore.Options{Dir: dir, Tools: os.Getenv(toolsVariable), Volatile: true})
	must(t, err)
	t.Cleanup(server.Stop)
	return server.URL
}

func TestEnsureTemplate_ConcurrentCallsMakeOneAndReplaceUnfinished(t *testing.T) {
	server := ownServer(t)
	var group sync.WaitGroup
	made := make([]template, 6)
	for i := range made {
		group.Go(func() {
			var err error
			if made[i], err = ensureTemplate(t.Context(), server); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for _, one := range made {
		if one.name != made[0].name {
			t.Errorf("templates %s and %s", made[0].name, one.name)
		}
	}
	var count int
	err := connect(t, server).QueryRow(t.Context(),
		"select count(*) from pg_database where datistemplate and datname = $1", made[0].name).Scan(&count)
	if err != nil || count != 1 {
		t.Errorf("%d templates, %v", count, err)
	}
	replacesUnfinished(t, server, made[0])
}

// replacesUnfinished checks that ensureTemplate makes a template again if it is not finished.
func replacesUnfinished(t *testing.T, server string, made template) {
	admin := connect(t, server)
	// As if the process that made it had died before the last statement.
	_, err := admin.Exec(t.Context(), "alter database "+made.name+" with is_template false allow_connections true")
	must(t, err)
	again, err := ensureTemplate(t.Context(), server)
	if err != nil || again.name != made.name {
		t.Fatalf("%v, %v", again.name, err)
	}
	var finished bool
	err = admin.QueryRow(t.Context(), "select datistemplate from pg_database where datname = $1", made.name).
		Scan(&finished)
	if err != nil || !finished {
		t.Errorf("finished: %v, %v", finished, err)
	}
}

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

func TestNewRedis_IsRemovedAfterTest(t *testing.T) {
	var dir, url string
	t.Run("inner", func(t *testing.T) {
		server := NewRedis(t)
		dir, url = server.Dir, server.URL
	})
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("directory: %v", err)
	}
	address := strings.TrimSuffix(url[strings.LastIndexByte(url, '@')+1:], "/0")
	if connection, err := net.Dial("tcp", address); err == nil {
		_ = connection.Close()
		t.Error("the server still answers")
	}
}

func TestOnce_BuildsForFirstTestAndFailsEach(t *testing.T) {
	built := 0
	number := Once(func(t testing.TB) int {
		t.Cleanup(func() { built = -1 })
		built++
		return built
	})
	for _, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			if got := number(t); got != 1 || built != 1 {
				t.Errorf("%d, built %d times", got, built)
			}
		})
	}
	fails := Once(func(t testing.TB) int { t.Fatal("no server"); return 0 })
	for range 2 {
		r := &recorder{TB: t}
		if fails(r); !r.failed {
			t.Error("the value could not be built, and the test did not fail")
		}
	}
}

func TestQuick_CallsUntilOneCallIsQuick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		Quick(t, 2, func() {
			time.Sleep([]time.Duration{3, 2, 1}[calls])
			calls++
		})
		if calls != 3 {
			t.Errorf("%d calls", calls)
		}
	})
}

// A recorder is a test that may fail.
type recorder struct {
	testing.TB
	failed bool
}

func (*recorder) Helper()                 {}
func (r *recorder) Fatalf(string, ...any) { r.failed = true }

func TestQuick_FailsIfEveryCallWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		Quick(r, time.Second, func() { time.Sleep(time.Second) })
		if !r.failed {
			t.Error("no call was quick, and the test did not fail")
		}
	})
}
