package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/shared/apierr"
)

// lockNotAvailable is the SQLSTATE of a lock timeout.
const lockNotAvailable = "55P03"

// outcome turns a failure to reach Postgres into an error that invites a retry. Otherwise an outage would look like a
// refusal or a bug.
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
		return temporary(fault.Code) || lostNode(fault)
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

// refusedBy reports whether a constraint of the table refused a statement with the SQLSTATE. In a distributed database
// the name of the table may end in the number of a shard, or be missing.
func refusedBy(err error, code, table string) bool {
	fault, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || fault.Code != code {
		return false
	}
	shard, found := strings.CutPrefix(fault.TableName, table)
	return fault.TableName == "" || found && strings.Trim(shard, "_0123456789") == ""
}

// lostNode reports whether Citus refused a statement or a commit because it lost the connection to a node. These errors
// have the SQLSTATE of an internal error.
func lostNode(fault *pgconn.PgError) bool {
	return fault.Code == "XX000" && (strings.HasPrefix(fault.Message, "failure on connection marked as essential") ||
		strings.HasPrefix(fault.Message, "execution cannot recover from multiple connection failures") ||
		strings.HasPrefix(fault.Message, "could not commit transaction "))
}

// temporary reports whether an SQLSTATE (PostgreSQL, appendix A) describes a temporary condition.
func temporary(code string) bool {
	if len(code) != 5 {
		return false
	}
	switch code[:2] {
	case "08", // connection
		"53", // out of connections, memory or disk
		"57", // shut down, starting up, cancelled by a time limit
		"58": // the server's operating system
		return true
	}
	switch code {
	case "25006", // read-only: a standby that is not yet the primary
		"25P03", "25P04", // idle too long, transaction too long
		"40001", "40P01", // serialisation, deadlock
		lockNotAvailable,
		"0A000": // a cached plan after a migration: a retry plans again
		return true
	}
	return false
}
