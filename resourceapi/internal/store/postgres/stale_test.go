package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// F26: the first request after a restart of Postgres succeeds.
func TestOpen_DoesNotUseClosedConnections(t *testing.T) {
	w := postgrestest.New(t)
	store := open(t, w)
	for range 3 {
		for name, pool := range map[string]*pgxpool.Pool{
			"general":  store.pool,
			"searches": store.searches,
			"probe":    store.probe,
		} {
			if _, err := pool.Exec(t.Context(), "select 1"); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		w.Database.EndSessions(t)
	}
}
