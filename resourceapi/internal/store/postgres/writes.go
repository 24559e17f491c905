package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/almonerhq/almoner/resourceapi/internal/idempotency"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"

	"github.com/almonerhq/almoner/shared/inflight"
)

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
	ctx context.Context, pool *pgxpool.Pool, turns *inflight.Requests[uuid.UUID], key idempotency.Key,
	effect func(context.Context, pgx.Tx) (idempotency.Answer, error),
) (answer idempotency.Answer, err error) {
	err = inTurn(ctx, turns, key.WorkspaceID, func() (err error) {
		answer, err = onceNow(ctx, pool, key, effect)
		return err
	})
	return answer, err
}

// onceNow is once without waiting for a turn. Its error is that of Postgres or effect, unchanged.
func onceNow(
	ctx context.Context,
	pool *pgxpool.Pool,
	key idempotency.Key,
	effect func(context.Context, pgx.Tx) (idempotency.Answer, error),
) (answer idempotency.Answer, err error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
		known := false
		if key.Given() {
			answer, known, err = claim(ctx, tx, key)
		}
		if err != nil || known {
			return err
		}
		if answer, err = effect(ctx, tx); err != nil || !key.Given() {
			return err
		}
		return storeAnswer(ctx, tx, key, answer)
	})
	return answer, err
}

// claim inserts the key's row, or returns the stored answer. The insert waits for a transaction that inserts the same
// row; a row older than a day is replaced.
func claim(ctx context.Context, tx pgx.Tx, key idempotency.Key) (first idempotency.Answer, known bool, err error) {
	for {
		claimed, err := insertKey(ctx, tx, key)
		if err != nil || claimed {
			return idempotency.Answer{}, false, err
		}
		first, err = storedAnswer(ctx, tx, key)
		if !errors.Is(err, pgx.ErrNoRows) { // otherwise the old row was deleted meanwhile
			return first, err == nil, err
		}
	}
}

// insertKey inserts the key's row, or replaces one that is older than a day. It reports whether it did. The time is
// that of the database.
func insertKey(ctx context.Context, tx pgx.Tx, key idempotency.Key) (bool, error) {
	tag, err := tx.Exec(ctx, `
		insert into resource.idempotency_keys (tenant_id, user_id, route, key, body_hash)
		values ($1, $2, $3, $4, $5) on conflict (tenant_id, user_id, route, key) do nothing`,
		key.WorkspaceID, key.User, key.Route, key.Text, key.Body[:])
	if err == nil && tag.RowsAffected() == 0 {
		tag, err = tx.Exec(ctx, `
			update resource.idempotency_keys set body_hash = $5, created_at = now(), status = null
			where tenant_id = $1 and user_id = $2 and route = $3 and key = $4
				and created_at <= now() - make_interval(secs => $6)`,
			key.WorkspaceID, key.User, key.Route, key.Text, key.Body[:], idempotency.Retention.Seconds())
	}
	if err != nil {
		return false, fmt.Errorf("claim an idempotency key: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

// storedAnswer returns the answer of a known key. It returns idempotency.ErrReused if the key was used for another
// body.
func storedAnswer(ctx context.Context, tx pgx.Tx, key idempotency.Key) (first idempotency.Answer, err error) {
	var same bool
	err = tx.QueryRow(
		ctx,
		`
		select body_hash = $5, status, coalesce(etag, ''), coalesce(location, ''), body
		from resource.idempotency_keys where tenant_id = $1 and user_id = $2 and route = $3 and key = $4`,
		key.WorkspaceID,
		key.User,
		key.Route,
		key.Text,
		key.Body[:],
	).Scan(&same, &first.Status, &first.ETag, &first.Location, &first.Body)
	if err != nil {
		return idempotency.Answer{}, fmt.Errorf("read the answer of an idempotency key: %w", err)
	}
	if !same {
		return idempotency.Answer{}, idempotency.ErrReused
	}
	first.Replayed = true
	return first, nil
}

func storeAnswer(ctx context.Context, tx pgx.Tx, key idempotency.Key, answer idempotency.Answer) error {
	tag, err := tx.Exec(ctx, `
		update resource.idempotency_keys set status = $5, etag = $6, location = $7, body = $8
		where tenant_id = $1 and user_id = $2 and route = $3 and key = $4`,
		key.WorkspaceID, key.User, key.Route, key.Text, answer.Status, answer.ETag, answer.Location, answer.Body)
	if err != nil {
		return fmt.Errorf("keep the answer of an idempotency key: %w", err)
	}
	if tag.RowsAffected() != 1 {
		return errors.New("the idempotency key went away within its transaction")
	}
	return nil
}
