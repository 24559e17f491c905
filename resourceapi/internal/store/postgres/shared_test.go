package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// shared is the database of the tests that look at their own workspaces only.
var shared = testkit.Once(func(t testing.TB) *postgrestest.Fixture {
	return postgrestest.New(t)
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

func open(t *testing.T, w *postgrestest.Fixture) *Store {
	t.Helper()
	return openWith(t, w, Limits{Connections: 4, Wait: testkit.SilentStoreWait})
}

func openWith(t *testing.T, w *postgrestest.Fixture, limits Limits) *Store {
	t.Helper()
	store := orFail(Open(t.Context(), w.URL(), limits))(t)
	t.Cleanup(store.Close)
	return store
}

// must fails the test if its arrangement failed.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// orFail returns the value, or fails the test: connection := orFail(pgx.Connect(ctx, url))(t).
func orFail[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return value
	}
}

// begin begins a transaction that is rolled back when the test ends, unless it has ended by then.
func begin(t *testing.T, store *Store) pgx.Tx {
	t.Helper()
	tx := orFail(store.pool.Begin(t.Context()))(t)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// draft returns the details of a programme.
func draft(name string) programme.Details {
	return programme.Details{Name: name, Status: programme.Draft}
}

// write makes a write without an Idempotency-Key.
func write(ctx context.Context, store *Store, do func(context.Context, programme.Writer) error) error {
	_, err := store.Once(ctx, rest.Key{}, func(ctx context.Context, w programme.Writer) (rest.Answer, error) {
		return rest.Answer{}, do(ctx, w)
	})
	return err
}
