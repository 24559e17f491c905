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

// unavailable wraps an error of a statement as store.ErrUnavailable. pgx.ErrNoRows is an answer, and is returned as it
// is.
func unavailable(op string, err error) error {
	if err == nil || errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	return fmt.Errorf("%w: postgres: %s: %w", store.ErrUnavailable, op, err)
}

// uncommitted is unavailable for a single-statement write. It adds grant.ErrNotCommitted where it is certain that
// nothing was written: the statement was never sent, or the server itself said that it failed.
func uncommitted(op string, err error) error {
	var refused *pgconn.PgError
	// Class 57P: the server is going down and may have committed before it said so.
	if errors.Is(err, batch.ErrUnasked) || pgconn.SafeToRetry(err) ||
		(errors.As(err, &refused) && refused.Code[:3] != "57P") {
		return fmt.Errorf("%w: %w", grant.ErrNotCommitted, unavailable(op, err))
	}
	return unavailable(op, err)
}
