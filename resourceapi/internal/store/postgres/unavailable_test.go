package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestUnavailable_LostNodeOfClusterInvitesRetry(t *testing.T) {
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
