package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// F26: the first request after a restart of Postgres succeeds.
func TestOpen_DoesNotUseClosedConnections(t *testing.T) {
	t.Parallel()
	w, store := ownStore(t)
	for range 2 {
		for _, pool := range []*database{store.pool, store.searches, store.probe} {
			orFail(pool.Exec(t.Context(), "select 1"))(t)
		}
		w.Database.EndSessions(t)
	}
}

// Requests get a checked connection from every pool, also from one with a single connection. A probe is itself a ping.
func TestOpen_PingsIdleConnectionsOfRequests(t *testing.T) {
	t.Parallel()
	w := shared(t).For(t)
	for _, connections := range []int32{1, 4} {
		store := orFail(Open(t.Context(), w.URL(), Limits{Connections: connections, Wait: testkit.StoreWait}))(t)
		t.Cleanup(store.Close)
		for pool, want := range map[*database]bool{store.pool: true, store.searches: true, store.probe: false} {
			connection := orFail(pool.Acquire(t.Context()))(t)
			idle := pgxpool.ShouldPingParams{Conn: connection.Conn(), IdleDuration: time.Hour}
			if got := pool.Config().ShouldPing(t.Context(), idle); got != want {
				t.Errorf("%d connections, pool of %d: ping is %t", connections, pool.Config().MaxConns, got)
			}
			connection.Release()
		}
	}
}
