// Package testkit provides real PostgreSQL databases and Redis servers for tests.
//
// NewDatabase clones a migrated template within a server shared by all tests of the process (or by all
// processes, if ALMONER_TEST_POSTGRES_URL names one, as `make test` does), or removes the rows of a clone that
// another test has used. NewRedis starts a server, which takes about 30 ms. A test that kills or stops PostgreSQL
// starts its own server with package localstore.
package testkit

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// A Database holds the URLs of a migrated database for one test, one per role.
type Database struct {
	Owner       string // owns every table; no superuser, as in a real installation
	Authserver  string // a login role that is a member of almoner_authserver
	Resourceapi string // a login role that is a member of almoner_resourceapi
	Superuser   string // for tests that act as the administrator: end sessions, stop writes
}

// Locks is a table expression for the locks of the sessions of this database. Use it in place of pg_locks, which has
// those of all databases: the tables of other tests have the same oids, because all databases are copies of a template.
// A lock on a transaction names no database, but its session has other locks.
const Locks = `(select * from pg_locks where pid in (select pid from pg_locks
	where database = (select oid from pg_database where datname = current_database()))) locks`

const makeWithin = 20 * time.Minute // includes a build

const (
	// StoreWait is how long services wait for a store that does not respond, unless the test is about that: on a busy
	// machine, a store needs longer than the default allows. ALMONER_STORE_WAIT accepts no longer time.
	StoreWait = 20 * time.Second
	// SilentStoreWait is StoreWait for tests that often wait so long because they stop a store or hold what it needs.
	SilentStoreWait = 3 * time.Second
)

// NewDatabase returns an empty database with both services' migrations applied. When the test ends, the database is
// emptied and renamed for reuse, or dropped.
func NewDatabase(t testing.TB) Database {
	t.Helper()
	template, err := sharedTemplate()
	if err != nil {
		t.Fatalf("a database for the test: %v", err)
	}
	return template.forTest(t)
}

// forTest makes a database that is given back or dropped when the test ends.
func (t template) forTest(test testing.TB) Database {
	test.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), makeWithin)
	defer cancel()
	name := databasePrefix + strings.ToLower(rand.Text())
	if err := t.makeDatabase(ctx, name); err != nil {
		test.Fatalf("a database for the test: %v", err)
	}
	test.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), makeWithin)
		defer cancel()
		if err := t.endDatabase(ctx, name, !test.Failed()); err != nil {
			test.Errorf("drop the test's database: %v", err)
		}
	})
	return t.database(name)
}

// NewRedis returns a Redis server for this test. It is killed and its files are removed when the test ends.
func NewRedis(t testing.TB) *localstore.Redis {
	t.Helper()
	parent, err := redisDir()
	Must(t, err)
	dir, err := os.MkdirTemp(parent, "")
	Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(context.Background(), makeWithin)
	defer cancel()
	server, err := localstore.StartRedis(ctx,
		localstore.Options{Dir: dir, Tools: os.Getenv(toolsVariable), Volatile: true})
	Must(t, err)
	t.Cleanup(server.Kill) // a shutdown takes up to 100 ms longer
	return server
}

// redisDir returns the parent directory of this process's Redis servers. It is removed even if the process is
// killed, as fuzz workers are when their time is over.
var redisDir = sync.OnceValues(func() (string, error) {
	dir, err := localstore.ProcessDir("almoner-test-redis-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711) // the servers' user must be able to enter it
})

// InDatabase returns the URL of another database of a server.
func InDatabase(server, name string) string {
	parsed, err := url.Parse(server)
	if err != nil {
		return ""
	}
	parsed.Path = "/" + name
	return parsed.String()
}

// Quick calls f until a call takes less than limit, and fails the test if none does. A busy machine delays calls, but
// not all of them; a caller that waits for what it must not wait for is delayed each time.
func Quick(t testing.TB, limit time.Duration, f func()) {
	t.Helper()
	fastest := time.Duration(1<<63 - 1)
	await.NoError(t, func() error {
		began := time.Now()
		f()
		if fastest = min(fastest, time.Since(began)); fastest < limit {
			return nil
		}
		return fmt.Errorf("the fastest call took %s, want less than %s", fastest, limit)
	})
}

// A Log stores what a service under test logged.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Take returns what was logged since the last Take. It bounds the memory of fuzz tests with millions of
// inputs.
func (l *Log) Take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// Must ends the test if what it arranges has failed.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Connect opens a session with a URL, which lasts until the test ends. A cleanup may call it.
func Connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	session, err := pgx.Connect(ctx, url)
	Must(t, err)
	t.Cleanup(func() { _ = session.Close(ctx) })
	return session
}

// Cut makes the database unavailable until the returned function is called.
func (d Database) Cut(t testing.TB) (restore func()) {
	t.Helper()
	allow := func(allowed string) {
		t.Helper()
		admin, ctx := Connect(t, d.Superuser), context.WithoutCancel(t.Context()) // a cleanup may restore
		defer func() { _ = admin.Close(ctx) }()
		name := pgx.Identifier{admin.Config().Database}.Sanitize()
		_, err := admin.Exec(ctx, `alter database `+name+` connection limit `+allowed)
		if err == nil {
			_, err = admin.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity
				where datname = current_database() and pid <> pg_backend_pid()`)
		}
		Must(t, err)
	}
	allow("0")
	return func() { allow("-1") }
}

// EndSessions ends every other session of the database, as a restart of PostgreSQL does, and returns once
// they have ended.
func (d Database) EndSessions(t testing.TB) {
	t.Helper()
	admin := Connect(t, d.Superuser)
	defer func() { _ = admin.Close(t.Context()) }()
	var ended bool
	err := admin.QueryRow(t.Context(), `select coalesce(bool_and(pg_terminate_backend(pid, 10000)), false)
		from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'`).
		Scan(&ended)
	if err != nil || !ended {
		t.Fatalf("sessions ended: %t, %v", ended, err)
	}
}

const (
	// serverVariable names a superuser URL of a server for all test processes.
	serverVariable = "ALMONER_TEST_POSTGRES_URL"
	// toolsVariable names the directory of privately unpacked server programs.
	toolsVariable = "ALMONER_TEST_TOOLS"
)

// sharedServer and sharedTemplate are the state of the test process: one server and one template for all its
// tests.
var (
	sharedServer   = sync.OnceValues(findServer)
	sharedTemplate = sync.OnceValues(func() (template, error) {
		server, err := sharedServer()
		if err != nil {
			return template{}, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), makeWithin)
		defer cancel()
		return ensureTemplate(ctx, server)
	})
)

// findServer returns the superuser's URL of the PostgreSQL server of the test process.
func findServer() (string, error) {
	if url := os.Getenv(serverVariable); url != "" {
		return url, nil
	}
	dir, err := localstore.ProcessDir("almoner-test-postgres-")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), makeWithin)
	defer cancel()
	started, err := localstore.StartPostgres(ctx,
		localstore.Options{Dir: dir, Tools: os.Getenv(toolsVariable), Volatile: true})
	if err != nil {
		return "", err
	}
	return started.URL, nil
}
