package postgres

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

// A refresh is undone only if it is certain that Postgres has not committed it. A distributed Postgres may lose the
// connection to a node while that node commits.
func TestUncommitted_LostNodeMayHaveCommitted(t *testing.T) {
	t.Parallel()
	for code, certain := range map[string]bool{
		"55P03": true,  // lock timeout
		"40P01": true,  // deadlock
		"0A000": true,  // not supported by a distributed Postgres
		"57P01": false, // the server is shutting down
		"08006": false, // connection to the remote node failed
		"XX000": false, // could not commit transaction for shard
	} {
		err := uncommitted("advance grant", &pgconn.PgError{Code: code})
		if errors.Is(err, grant.ErrNotCommitted) != certain {
			t.Errorf("%s: %v, want certain: %t", code, err, certain)
		}
	}
}
