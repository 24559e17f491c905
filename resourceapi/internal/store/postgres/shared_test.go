package postgres

import (
	"testing"

	"github.com/almonerhq/almoner/shared/devkit/testkit"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// shared is the database of the tests that look at their own workspaces only.
var shared = testkit.Once(func(t testing.TB) *postgrestest.Fixture {
	return postgrestest.NewWithJobs(t, MigrateJobs)
})

// newStore returns an organisation in the shared database, and a Store.
func newStore(t *testing.T) (*postgrestest.Fixture, *Store) {
	t.Helper()
	w := shared(t).For(t)
	return w, open(t, w)
}

// ownStore is newStore with a database of its own, for tests that change the schema or see all workspaces: a worker
// takes any import.
func ownStore(t *testing.T) (*postgrestest.Fixture, *Store) {
	t.Helper()
	w := postgrestest.New(t)
	return w, open(t, w)
}

// wantCount checks the number that a query yields. what says what it counts.
func wantCount(t *testing.T, w *postgrestest.Fixture, want int, what, query string, args ...any) {
	t.Helper()
	if got := w.Count(query, args...); got != want {
		t.Errorf("got %d %s, want %d: %s %v", got, what, want, query, args)
	}
}

func open(t *testing.T, w *postgrestest.Fixture) *Store {
	t.Helper()
	return openWith(t, w, Limits{Connections: 4, Wait: testkit.SilentStoreWait})
}

func openWith(t *testing.T, w *postgrestest.Fixture, limits Limits) *Store {
	t.Helper()
	store, err := Open(t.Context(), w.URL(), limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}
