package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/rest"
	"github.com/almonerhq/almoner/shared/server/inflight"
)

// answers stores the answers of writes. An endpoint seals an answer that contains a secret.
var answers = rest.AnswerTable{Name: "resource.idempotency_keys"}

// writing implements programme.Writer, engage.Writer and delivery.Writer within one transaction.
type writing struct {
	tx    pgx.Tx
	queue Queue // of Engage
}

// transaction returns the transaction for the statements of one method.
func (w *writing) transaction(ctx context.Context) *transaction {
	return &transaction{Tx: w.tx, ctx: ctx}
}

// Once runs effect in a transaction and stores its answer under key, if one was given. For a known key it returns the
// first answer without running effect, or rest.ErrReused if the body differs. Of two concurrent requests with
// one key, the second waits for the first. An error of effect is returned unchanged, and nothing is stored.
func (s *Store) Once(ctx context.Context, key rest.Key, effect rest.Effect[programme.Writer]) (rest.Answer, error) {
	return s.once(ctx, key, func(ctx context.Context, tx pgx.Tx) (rest.Answer, error) {
		return effect(ctx, &writing{tx: tx})
	})
}

// Once is Store.Once for the writes of Engage.
func (e *Engage) Once(ctx context.Context, key rest.Key, effect rest.Effect[engage.Writer]) (rest.Answer, error) {
	return e.once(ctx, key, func(ctx context.Context, tx pgx.Tx) (rest.Answer, error) {
		return effect(ctx, &writing{tx, e.queue})
	})
}

// Once is Store.Once for changes of webhook endpoints.
func (w *Webhooks) Once(ctx context.Context, key rest.Key, effect rest.Effect[delivery.Writer]) (rest.Answer, error) {
	return w.once(ctx, key, func(ctx context.Context, tx pgx.Tx) (rest.Answer, error) {
		return effect(ctx, &writing{tx: tx})
	})
}

// once is Once for an effect that receives the transaction. It runs in a turn of the key's workspace.
func (s *Store) once(ctx context.Context, key rest.Key, effect rest.Effect[pgx.Tx]) (answer rest.Answer, err error) {
	err = s.inTurn(ctx, key.WorkspaceID, func() error {
		return s.pool.transact(ctx, func(t *transaction) {
			answer, t.err = answers.Once(t.ctx, t.Tx, key, effect)
		})
	})
	return answer, err
}

// Writes of one workspace wait for each other in Postgres (programmes.go), each holding a connection. So each process
// runs only a few writes of a workspace in Postgres at once; the others wait without a connection, and no workspace
// can use up the pool. The jobs that finish its submissions take turns with its writes.
//
// An import takes no turn, since it would hold it for seconds. It cannot use up the pool either: a process handles
// one import at a time, over all workspaces, with one connection. So of the 11 general connections that the default
// of 16 leaves, one workspace holds at most 6 at once: 2 for writes and jobs, 3 for long pages (package gate) and 1
// for an import. While no other workspace writes, it may use 4 for writes.
const (
	maxWrites    = 256             // of a workspace, running or waiting
	maxWriteWait = 2 * time.Second // for the turn
)

// lockWithin is shorter than the statement timeout, so that a wait for another transaction can be told from a
// database that does not respond.
func lockWithin(timeout time.Duration) time.Duration { return timeout - 300*time.Millisecond }

// newTurns returns the turns of a pool of general connections, of which one workspace may use a quarter, or less than
// half while no other writes.
func newTurns(general int32) *inflight.Requests[uuid.UUID] {
	return inflight.New[uuid.UUID](inflight.Bounds{
		InFlight: maxWrites,
		AtOnce:   max(1, int(general)/4),
		Alone:    int(general)/2 - 1,
		Wait:     maxWriteWait,
	})
}

// inTurn runs write in a turn of the workspace. Its error is write's, or an *apierr.Error of kind Unavailable.
func (s *Store) inTurn(ctx context.Context, workspace uuid.UUID, write func() error) error {
	turn, err := s.turns.Enter(ctx, workspace)
	switch {
	case errors.Is(err, inflight.ErrFailing):
		return outcome(fmt.Errorf("%w: %w", err, context.DeadlineExceeded))
	case err != nil:
		return busy(err)
	}
	failed := true // stays true if write panics
	defer func() { turn.Leave(failed) }()
	err = write()
	if fault, ok := errors.AsType[*pgconn.PgError](err); ok && fault.Code == lockNotAvailable {
		failed = false
		return busy(fmt.Errorf("%w: %w", inflight.ErrWaited, err))
	}
	failed = err != nil && unavailable(err)
	return outcome(err)
}

// busy returns the refusal of a write that waited too long for others of its workspace.
func busy(cause error) error {
	return &apierr.Error{
		Kind:    apierr.Unavailable,
		Message: "Other writes or an import of this workspace are running. Try again after the time in Retry-After.",
		Cause:   cause,
	}
}
