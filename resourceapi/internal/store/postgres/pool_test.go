package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// The client and the server cancel a statement after a second, or after the time that callers wait for a Postgres that
// does not respond, whichever is longer.
func TestOpen_StatementTimeoutIsAtLeastWait(t *testing.T) {
	t.Parallel()
	w := postgrestest.New(t)
	for wait, finishes := range map[time.Duration]bool{0: false, time.Minute: true} {
		store, err := Open(t.Context(), w.URL(), Limits{Connections: 4, Wait: wait})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		for name, limited := range map[string]bool{"client": true, "server": false} {
			ctx, cancel := context.WithCancel(t.Context())
			if limited {
				ctx, cancel = store.pool.bounded(ctx)
			}
			_, err = store.pool.Exec(ctx, "select pg_sleep(1.5)")
			cancel()
			if err == nil != finishes {
				t.Errorf("%s, wait %s: %v", name, wait, err)
			}
		}
	}
}
