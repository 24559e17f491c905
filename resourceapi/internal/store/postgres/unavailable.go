package postgres

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/shared/apierr"
)

// lockNotAvailable is the SQLSTATE of a lock not had in time.
const lockNotAvailable = "55P03"

// outcome turns a failure to get an answer from Postgres into one that the caller may try again after. Without this,
// an outage would look like a refusal or a mistake.
func outcome(err error) error {
	if err == nil || !unavailable(err) {
		return err
	}
	return &apierr.Error{
		Kind:    apierr.Unavailable,
		Cause:   err,
		Message: "The service cannot reach its database at the moment. Try again in a few seconds.",
	}
}

func unavailable(err error) bool {
	if fault, ok := errors.AsType[*pgconn.PgError](err); ok {
		return passing(fault.Code)
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err)
}

// passing says whether an SQLSTATE (PostgreSQL, appendix A) tells of a state that passes.
func passing(code string) bool {
	if len(code) != 5 {
		return false
	}
	switch code[:2] {
	case "08", // connection
		"53", // out of connections, memory or disk
		"57", // shut down, starting up, cancelled by a time limit
		"58": // the system around it
		return true
	}
	switch code {
	case "25006", // read-only: a standby that is not yet the primary
		"25P03", "25P04", // idle too long, transaction too long
		"40001", "40P01", // serialisation, deadlock
		lockNotAvailable,
		"0A000": // a cached plan after a migration: the next try plans anew
		return true
	}
	return false
}
