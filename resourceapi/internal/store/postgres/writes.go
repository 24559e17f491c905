package postgres

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"

	"github.com/almonerhq/almoner/shared/idempotency"
	"github.com/almonerhq/almoner/shared/inflight"
)

// answers stores the answers of writes. An endpoint seals an answer that contains a secret.
var answers = idempotency.Table{Name: "resource.idempotency_keys"}

// writing implements programme.Writer within one transaction.
type writing struct{ tx pgx.Tx }

// Once runs effect in a transaction and stores its answer under key, if one was given. For a known key it returns the
// first answer without running effect, or idempotency.ErrReused if the body differs. Of two concurrent requests with
// one key, the second waits for the first. An error of effect is returned unchanged, and nothing is stored.
func (s *Store) Once(
	ctx context.Context,
	key idempotency.Key,
	effect func(context.Context, programme.Writer) (idempotency.Answer, error),
) (idempotency.Answer, error) {
	return once(ctx, s.pool, s.turns, key, func(ctx context.Context, tx pgx.Tx) (idempotency.Answer, error) {
		return effect(ctx, &writing{tx})
	})
}

// once is Store.Once for an effect that receives the transaction. It runs in a turn of the key's workspace.
func once(
	ctx context.Context, pool *database, turns *inflight.Requests[uuid.UUID], key idempotency.Key,
	effect func(context.Context, pgx.Tx) (idempotency.Answer, error),
) (answer idempotency.Answer, err error) {
	err = inTurn(ctx, turns, key.WorkspaceID, func() (err error) {
		answer, err = onceNow(ctx, pool, key, effect)
		return err
	})
	return answer, err
}

// onceNow is once without waiting for a turn. It returns errors of Postgres and of effect unchanged.
func onceNow(
	ctx context.Context,
	pool *database,
	key idempotency.Key,
	effect func(context.Context, pgx.Tx) (idempotency.Answer, error),
) (answer idempotency.Answer, err error) {
	ctx, cancel := pool.bounded(ctx)
	defer cancel()
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
		answer, err = answers.Once(ctx, tx, key, effect)
		return err
	})
	return answer, err
}
