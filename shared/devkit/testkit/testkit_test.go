package testkit

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/shared/devkit/await"
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

func TestNewDatabase_IsSeparateAndEndsWithTest(t *testing.T) {
	var first Database
	t.Run("one", func(t *testing.T) {
		first = NewDatabase(t)
		other := NewDatabase(t)
		const sql = "insert into account.organisations (id, name) values (gen_random_uuid(), 'Here')"
		if _, err := connect(t, first.Authserver).Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		var count int
		err := connect(t, other.Authserver).QueryRow(t.Context(), "select count(*) from account.organisations").
			Scan(&count)
		if err != nil || count != 0 {
			t.Errorf("%d rows of another test, %v", count, err)
		}
	})
	_, err := pgx.Connect(t.Context(), first.Superuser)
	if codeOf(err) != "3D000" { // invalid_catalog_name
		t.Errorf("after the test: %v", err)
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
	err := connect(
		t,
		server,
	).QueryRow(t.Context(), "select count(*) from pg_database where datistemplate and datname = $1", made[0].name).
		Scan(&count)
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

// The workers of a fuzz test do not run their cleanups.
func TestNewRedis_IsRemovedAfterKill(t *testing.T) {
	const victim = "ALMONER_TEST_KILLED"
	if os.Getenv(victim) != "" {
		fmt.Println(NewRedis(t).Dir)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	killed := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	killed.Env = append(os.Environ(), victim+"=1")
	output, err := killed.Output()
	dir, _, _ := strings.Cut(string(output), "\n")
	if err == nil || !filepath.IsAbs(dir) {
		t.Fatalf("the process was not killed: %v %s", err, output)
	}
	await.True(t, "the files are removed", func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	})
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
