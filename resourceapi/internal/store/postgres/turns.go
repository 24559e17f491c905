package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/inflight"
)

// Writes of one workspace wait for each other in Postgres (moments.go), each with a connection. So a workspace has few
// writes in Postgres at once, in one process; its others wait for their turn without a connection, and no workspace
// takes the pool from another. The jobs that end its submissions take turns with its writes.
//
// An import takes no turn, as it would keep one for seconds. It cannot take the pool either: a process works on one
// import at a time, of whichever workspace, with one connection. So of the 11 general connections that the default of
// 16 leaves, one workspace holds at most 6 at once: 2 for writes and jobs, 3 for long pages (package gate) and 1 for an
// import.
const (
	maxWrites    = 256             // of a workspace, that have or wait for their turn
	maxWriteWait = 2 * time.Second // for the turn
)

// lockWithin is shorter than patience, so that a wait for another transaction is told from a database that does not
// answer.
const lockWithin = patience - 300*time.Millisecond

// newTurns makes the turns of a pool of general connections, of which one workspace has a quarter.
func newTurns(general int32) *inflight.Requests[uuid.UUID] {
	return inflight.New[uuid.UUID](inflight.Bounds{
		InFlight: maxWrites,
		AtOnce:   max(1, int(general)/4),
		Wait:     maxWriteWait,
	})
}

// inTurn runs write when it is the turn of the workspace. Its error is write's, or an *apierr.Error of kind
// Unavailable.
func inTurn(ctx context.Context, turns *inflight.Requests[uuid.UUID], workspace uuid.UUID, write func() error) error {
	turn, err := turns.Enter(ctx, workspace)
	switch {
	case errors.Is(err, inflight.ErrFailing):
		return outcome(fmt.Errorf("%w: %w", err, context.DeadlineExceeded))
	case err != nil:
		return busy(err)
	}
	failed := true // write panics
	defer func() { turn.Leave(failed) }()
	err = write()
	if fault, ok := errors.AsType[*pgconn.PgError](err); ok && fault.Code == lockNotAvailable {
		failed = false
		return busy(fmt.Errorf("%w: %w", inflight.ErrWaited, err))
	}
	failed = err != nil && unavailable(err)
	return outcome(err)
}

// busy is the refusal of a write that waited for others of its workspace.
func busy(cause error) error {
	return &apierr.Error{
		Kind: apierr.Unavailable,
		Message: "Other writes or an import of this workspace are running. Try again after the seconds that " +
			"Retry-After says.",
		Cause: cause,
	}
}
