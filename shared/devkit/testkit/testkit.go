// Package testkit provides real PostgreSQL databases and Redis servers for tests.
//
// NewDatabase clones a migrated template within a server shared by all tests of the process (or by all
// processes, if ALMONER_TEST_POSTGRES_URL names one, as `make test` does), or removes the rows of a clone that
// another test has used. NewRedis starts a server, which takes about 30 ms. A test that kills or stops PostgreSQL
// starts its own server with package localstore.
package testkit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// A Database holds the URLs of a migrated database for one test, one per role.
type Database struct {
	Owner       string // owns every table; no superuser, as in a real installation
	Authserver  string // a login role that is a member of almoner_authserver
	Resourceapi string // a login role that is a member of almoner_resourceapi
	Superuser   string // for tests that act as the administrator: end sessions, stop writes
}

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

// A Preparation changes the schema of a migrated database. owner is the URL of the database for its owner.
type Preparation func(ctx context.Context, owner string) error

// NewPreparedDatabase is NewDatabase with the changes of prepare, which runs once for all tests that use the name. A
// server that outlives the tests keeps the result: after a change of prepare, drop its databases named
// almoner_template_… and emptied_….
func NewPreparedDatabase(t testing.TB, name string, prepare Preparation) Database {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), makeWithin)
	defer cancel()
	template, err := sharedTemplate()
	if err != nil {
		t.Fatalf("a database for the test: %v", err)
	}
	if distributes() { // Citus does not copy the preparation
		database := template.forTest(t)
		if err := prepare(ctx, database.Owner); err != nil {
			t.Fatalf("prepare the database for the test: %v", err)
		}
		return database
	}
	prepared, err := preparedTemplate(ctx, template, name, prepare)
	if err != nil {
		t.Fatalf("prepare a database for the test: %v", err)
	}
	return prepared.forTest(t)
}

// forTest makes a database that is given back or dropped when the test ends.
func (t template) forTest(test testing.TB) Database {
	test.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), makeWithin)
	defer cancel()
	suffix := make([]byte, 8)
	_, _ = rand.Read(suffix) // never fails (crypto/rand)
	name := databasePrefix + hex.EncodeToString(suffix)
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
	if err != nil {
		t.Fatalf("a Redis for the test: %v", err)
	}
	dir, err := os.MkdirTemp(parent, "")
	if err != nil {
		t.Fatalf("a Redis for the test: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(context.Background(), makeWithin)
	defer cancel()
	server, err := localstore.StartRedis(
		ctx,
		localstore.Options{Dir: dir, Tools: os.Getenv(toolsVariable), Volatile: true},
	)
	if err != nil {
		t.Fatalf("a Redis for the test: %v", err)
	}
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

func inDatabase(server, name string) string {
	parsed, err := url.Parse(server)
	if err != nil {
		return ""
	}
	parsed.Path = "/" + name
	return parsed.String()
}
