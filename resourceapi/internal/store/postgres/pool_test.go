package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// The client and the server cancel a statement after a second, or after the time that callers wait for a Postgres that
// does not respond, whichever is longer, whatever the URL says.
func TestOpen_StatementTimeoutIsAtLeastWait(t *testing.T) {
	t.Parallel()
	w := shared(t).For(t)
	separator := "?"
	if strings.Contains(w.Database.Resourceapi, "?") {
		separator = "&"
	}
	url := w.Database.Resourceapi + separator + "default_query_exec_mode=simple_protocol&statement_timeout=0"
	for wait, want := range map[time.Duration]string{0: "1s", time.Minute: "1min"} {
		store, err := Open(t.Context(), credential.Fixed(credential.Secret(url)), Limits{Connections: 4, Wait: wait})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		if mode := store.pool.Config().ConnConfig.DefaultQueryExecMode; mode != pgx.QueryExecModeCacheStatement {
			t.Errorf("mode %s", mode)
		}
		connection := orFail(store.pool.Acquire(t.Context()))(t)
		var server string
		err = connection.QueryRow(t.Context(), "show statement_timeout").Scan(&server)
		connection.Release()
		if client := store.pool.timeout; err != nil || server != want || client != max(time.Second, wait) {
			t.Errorf("wait %s: limits of %s and %s, %v, want %s", wait, server, client, err, want)
		}
		store.pool.timeout = 50 * time.Millisecond
		if _, err := store.pool.Exec(t.Context(), "select pg_sleep(5)"); !unavailable(err) {
			t.Errorf("a longer statement: %v", err)
		}
	}
}

func TestUnavailable_LostNodeOfClusterInvitesRetry(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]bool{
		"failure on connection marked as essential: node2.internal:5432":            true,
		"execution cannot recover from multiple connection failures":                true,
		"could not commit transaction for shard 102085 on at least one active node": true,
		"cache lookup failed for relation 16384":                                    false,
	} {
		if got := unavailable(&pgconn.PgError{Code: "XX000", Message: message}); got != want {
			t.Errorf("%s: %t", message, got)
		}
	}
}
