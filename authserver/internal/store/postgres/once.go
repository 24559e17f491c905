package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/idempotency"
	"github.com/almonerhq/almoner/shared/seal"
)

// answersTable stores the answers of the account API by Idempotency-Key.
const answersTable = "account.idempotency_keys"

// UseAnswers makes the store seal the answers that it stores. They may contain secrets.
func (s *Store) UseAnswers(box *seal.Box) { s.answers = box }

// A writing is the transaction of a write that has an Idempotency-Key.
type writing struct {
	tx    pgx.Tx
	after []func() // run when the transaction is committed
}

type writingKey struct{}

func writingOf(ctx context.Context) *writing {
	w, _ := ctx.Value(writingKey{}).(*writing)
	return w
}

// Once implements writes.Store. The methods of the store that effect calls use the transaction of its context.
func (s *Store) Once(
	ctx context.Context,
	key idempotency.Key,
	effect func(context.Context) (idempotency.Answer, error),
) (answer idempotency.Answer, err error) {
	var w *writing
	var failure error
	table := idempotency.Table{Name: answersTable, Box: s.answers}
	err = s.atomically(ctx, "answer once", func(tx pgx.Tx) (err error) {
		w = &writing{tx: tx}
		failure = nil
		answer, err = table.Once(ctx, tx, key, func(ctx context.Context, _ pgx.Tx) (idempotency.Answer, error) {
			answer, err := effect(context.WithValue(ctx, writingKey{}, w))
			failure = err
			return answer, err
		})
		return err
	})
	if failure != nil {
		return idempotency.Answer{}, failure
	}
	if err != nil {
		return idempotency.Answer{}, err
	}
	for _, do := range w.after {
		do()
	}
	return answer, nil
}

// AfterCommit calls do when the transaction of ctx is committed, or immediately if ctx has none.
func AfterCommit(ctx context.Context, do func()) {
	if w := writingOf(ctx); w != nil {
		w.after = append(w.after, do)
		return
	}
	do()
}

// A querier runs a query, in a transaction or with a connection of the pool.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// reader returns the transaction of ctx, or the pool if there is none. A write that holds a connection must not wait
// for another one.
func (s *Store) reader(ctx context.Context) querier {
	if w := writingOf(ctx); w != nil {
		return w.tx
	}
	return s.pool
}
