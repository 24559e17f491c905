package postgres

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/batch"
)

// unavailable wraps an error of a statement as store.ErrUnavailable. It returns pgx.ErrNoRows unchanged.
func unavailable(op string, err error) error {
	if err == nil || errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	return fmt.Errorf("%w: postgres: %s: %w", store.ErrUnavailable, op, err)
}

// uncommitted is unavailable for a single-statement write. It adds grant.ErrNotCommitted if it is certain
// that nothing was written: the statement was never sent, or the server reported that it failed. A distributed
// Postgres that lost the connection to a node (class 08, internal error) does not know what that node has committed.
func uncommitted(op string, err error) error {
	var pgErr *pgconn.PgError
	// Class 57P: the server is shutting down and may have committed before it reported the error.
	if errors.Is(err, batch.ErrNotSent) || pgconn.SafeToRetry(err) ||
		(errors.As(err, &pgErr) && pgErr.Code[:3] != "57P" && pgErr.Code[:2] != "08" && pgErr.Code != "XX000") {
		return fmt.Errorf("%w: %w", grant.ErrNotCommitted, unavailable(op, err))
	}
	return unavailable(op, err)
}
