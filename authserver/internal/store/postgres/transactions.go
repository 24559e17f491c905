package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/database/pg"
	"github.com/almonerhq/almoner/shared/rest"
)

const deadlockTries = 5

// The time limits of all tries of a transaction: of a request, which must get its answer, and of an operator's command.
// On a slow database, the operator prefers to wait.
const (
	requestTime = 5 * acquireTimeout
	commandTime = 30 * acquireTimeout
)

// ServeCommands makes the store wait longer, for a process that runs an operator's command and serves no requests.
func (d *db) ServeCommands() { d.limit, d.operationLimit = commandTime, commandTime }

// withOperationLimit returns a context with the time limit of an operation that atomically does not run.
func (d *db) withOperationLimit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d.operationLimit)
}

// A transaction runs the statements of one change. It keeps the first error: no statement runs after it, and the
// transaction is rolled back with it, whatever follows. A change therefore checks only what it decides by.
type transaction struct {
	pgx.Tx
	db      *db
	ctx     context.Context
	err     error
	noEvent bool // the change is committed without its event: it changed nothing, or recorded other events
	// rehearses means that the transaction is rolled back (Rehearse). It locks no grants and tokens.
	rehearses bool
}

// fail ends the transaction with an error. It does nothing if the error is nil.
func (t *transaction) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

// A refusal is a domain error that ended a transaction.
type refusal struct{ error }

// Unwrap returns the domain error.
func (r refusal) Unwrap() error { return r.error }

// refuse ends the transaction with a domain error, which atomically returns unchanged.
func (t *transaction) refuse(err error) { t.fail(refusal{err}) }

// require refuses the transaction unless ok is true.
func (t *transaction) require(ok bool, err error) {
	if !ok {
		t.refuse(err)
	}
}

// exec runs a statement and returns the number of its rows.
func (t *transaction) exec(sql string, args ...any) int64 {
	if t.err != nil {
		return 0
	}
	tag, err := t.Exec(t.ctx, sql, args...)
	t.fail(err)
	return tag.RowsAffected()
}

// violation replaces the error of the transaction if the last statement violated a constraint (violates).
func (t *transaction) violation(code, table string, as error) {
	if violates(t.err, code, table) {
		t.err = refusal{as}
	}
}

// change runs the statement of a change, which has no event if the statement has no rows.
func (t *transaction) change(sql string, args ...any) { t.noEvent = t.exec(sql, args...) == 0 }

// A row is the row of a query in a transaction.
type row struct {
	tx   *transaction
	sql  string
	args []any
}

func (t *transaction) row(sql string, args ...any) row { return row{t, sql, args} }

// find reads the row into targets, and returns false if there is none.
func (r row) find(targets ...any) bool {
	if r.tx.err != nil {
		return false
	}
	err := r.tx.QueryRow(r.tx.ctx, r.sql, r.args...).Scan(targets...)
	if errors.Is(err, pgx.ErrNoRows) {
		return false
	}
	r.tx.fail(err)
	return err == nil
}

// read is find for a row that must be there.
func (r row) read(targets ...any) {
	if !r.find(targets...) {
		r.tx.fail(pgx.ErrNoRows)
	}
}

// has reports whether a query that selects true has a row.
func (t *transaction) has(sql string, args ...any) (yes bool) {
	t.row(sql, args...).find(&yes)
	return yes
}

// rowsOf reads the rows of a query.
func rowsOf[T any](t *transaction, scan pgx.RowToFunc[T], sql string, args ...any) (all []T) {
	if t.err == nil {
		var err error
		all, err = collect(t.ctx, t, scan, sql, args...)
		t.fail(err)
	}
	return all
}

// lock takes an advisory lock until the end of the transaction.
func (t *transaction) lock(name string) {
	t.exec(`select pg_advisory_xact_lock(hashtextextended($1, 0))`, name)
}

// record appends an audit event, with the mail that mail.Notices names for the action.
func (t *transaction) record(e audit.Event) {
	t.exec(insertEvent, eventArgs(e))
	t.mailNotice(e)
}

// change runs do like atomically, if what allowed the event still holds, and records the event.
func (d *db) change(ctx context.Context, op string, event *audit.Event, do func(*transaction)) error {
	_, err := d.changeIf(ctx, op, event, do)
	return err
}

// changeIf is change. It returns false if the change has no event.
func (d *db) changeIf(ctx context.Context, op string, event *audit.Event, do func(*transaction)) (bool, error) {
	return d.recorded(ctx, op, event, func(tx *transaction) {
		if tx.stillAllowed(event.Authorization); tx.err == nil {
			do(tx)
		}
	})
}

// recorded runs do like atomically and records the event. It returns false if the change has no event.
func (d *db) recorded(
	ctx context.Context, op string, event *audit.Event, do func(*transaction),
) (recorded bool, err error) {
	err = d.atomically(ctx, op, func(tx *transaction) {
		do(tx)
		if recorded = !tx.noEvent; recorded {
			tx.record(*event)
		}
	})
	return recorded && err == nil, err
}

// atomically runs do in the transaction of ctx (Once), or in a new one if ctx has none. It retries a transaction that
// Postgres aborted for a deadlock, a lock timeout or a serialization failure. Domain errors are returned unchanged:
// refusals, and those of the shared packages that run statements. All others wrap store.ErrUnavailable.
func (d *db) atomically(ctx context.Context, op string, do func(*transaction)) error {
	ctx, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	defer d.recent.Purge()
	run := func(tx pgx.Tx) error {
		w := writingOf(ctx)
		t := &transaction{Tx: tx, db: d, ctx: ctx, rehearses: w != nil && w.rehearses}
		do(t)
		return t.err
	}
	var err error
	for range deadlockTries {
		if w := writingOf(ctx); w != nil { // Once tries the whole transaction again
			err = run(w.tx)
			break
		}
		if err = pgx.BeginFunc(ctx, d.pool, run); !retryable(err) {
			break
		}
	}
	if refused, ok := errors.AsType[refusal](err); ok {
		return refused.error
	}
	for _, own := range append(webhook.Errors(), rest.ErrReused, audit.ErrNotAuthorized) {
		if errors.Is(err, own) {
			return own
		}
	}
	return unavailable(op, err)
}

// sequentially makes a distributed Postgres visit one shard after the other until the transaction ends. Otherwise it
// refuses to change a table that is copied to each node, or refers to one, after a statement about several workspaces.
// Other servers ignore the setting.
func (t *transaction) sequentially() {
	t.exec(`select set_config('citus.multi_shard_modify_mode', 'sequential', true)`)
}

// retryable reports whether a transaction failed because of a concurrent one. If a grant is approved twice at once,
// the second approval violates grants_by_id, which "on conflict (tenant_id, id)" does not cover.
func retryable(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains([]string{"40P01", "40001", "55P03"}, refused.Code) ||
		violates(err, uniqueViolation, "grants") || errors.Is(err, errJoined)
}

// answersTable stores the answers of the account API by Idempotency-Key.
const answersTable = "account.idempotency_keys"

// UseAnswers makes the store seal the answers that it stores. They may contain secrets.
func (d *db) UseAnswers(box *seal.Box) { d.answers = box }

// A writing is the transaction of a write that has an Idempotency-Key, or of a rehearsal.
type writing struct {
	tx        pgx.Tx
	after     []func() // run when the transaction is committed
	rehearses bool
}

type writingKey struct{}

func writingOf(ctx context.Context) *writing {
	w, _ := ctx.Value(writingKey{}).(*writing)
	return w
}

// Once implements rest.AnswerStore. The methods of the store that effect calls use the transaction of its context.
func (d *db) Once(
	ctx context.Context, key rest.Key, effect func(context.Context) (rest.Answer, error),
) (answer rest.Answer, err error) {
	var w *writing
	table := rest.AnswerTable{Name: answersTable, Box: d.answers}
	err = d.atomically(ctx, "answer once", func(tx *transaction) {
		w = &writing{tx: tx.Tx}
		answer, tx.err = table.Once(ctx, tx.Tx, key, func(ctx context.Context, _ pgx.Tx) (rest.Answer, error) {
			answer, err := effect(context.WithValue(ctx, writingKey{}, w))
			if err != nil {
				err = refusal{err} // the error of effect is already the one for the caller
			}
			return answer, err
		})
	})
	if err != nil {
		return rest.Answer{}, err
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

// collect reads the rows of a query.
func collect[T any](ctx context.Context, from querier, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := from.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// exec runs a statement with the time limit of an operation, and returns the number of its rows.
func (d *db) exec(ctx context.Context, op, sql string, args ...any) (int64, error) {
	ctx, cancel := d.withOperationLimit(ctx)
	defer cancel()
	tag, err := d.pool.Exec(ctx, sql, args...)
	return tag.RowsAffected(), unavailable(op, err)
}

// list is collect with the time limit of an operation.
func list[T any](ctx context.Context, d *db, op string, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	ctx, cancel := d.withOperationLimit(ctx)
	defer cancel()
	return listLong(ctx, d, op, scan, sql, args...)
}

// listLong is list with twice the time.
func listLong[T any](
	ctx context.Context, d *db, op string, scan pgx.RowToFunc[T], sql string, args ...any,
) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*d.operationLimit)
	defer cancel()
	found, err := collect(ctx, d.reader(ctx), scan, sql, args...)
	return found, unavailable(op, err)
}

// one reads the first row of a query, like list. It returns false if there is none.
func one[T any](
	ctx context.Context, d *db, op string, scan pgx.RowToFunc[T], sql string, args ...any,
) (row T, exists bool, err error) {
	row, err = need(ctx, d, op, pgx.ErrNoRows, scan, sql, args...)
	if errors.Is(err, pgx.ErrNoRows) {
		return row, false, nil
	}
	return row, err == nil, err
}

// need is one for a row that must be there: it returns the error missing if there is none.
func need[T any](
	ctx context.Context, d *db, op string, missing error, scan pgx.RowToFunc[T], sql string, args ...any,
) (row T, err error) {
	ctx, cancel := d.withOperationLimit(ctx)
	defer cancel()
	rows, err := d.reader(ctx).Query(ctx, sql, args...)
	if err == nil {
		row, err = pgx.CollectOneRow(rows, scan)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return row, missing
	}
	return row, unavailable(op, err)
}

// ordered returns stored permissions in the order of package perm. It is never nil.
func ordered(stored perm.Set) perm.Set { return perm.NewSet(append(perm.Set{}, stored...)...) }

// withPermissions is pgx.RowToStructByName for a struct with stored permissions.
func withPermissions[T any](of func(*T) *perm.Set) pgx.RowToFunc[T] {
	return func(row pgx.CollectableRow) (T, error) {
		found, err := pgx.RowToStructByName[T](row)
		*of(&found) = ordered(*of(&found))
		return found, err
	}
}

// reader returns the transaction of ctx, or the pool if there is none. A write that holds a connection must not wait
// for another one.
func (d *db) reader(ctx context.Context) querier {
	if w := writingOf(ctx); w != nil {
		return w.tx
	}
	return d.pool
}

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
	if errors.Is(err, pg.ErrNotSent) || pgconn.SafeToRetry(err) ||
		(errors.As(err, &pgErr) && pgErr.Code[:3] != "57P" && pgErr.Code[:2] != "08" && pgErr.Code != "XX000") {
		return fmt.Errorf("%w: %w", grant.ErrNotCommitted, unavailable(op, err))
	}
	return unavailable(op, err)
}

// SQLSTATE codes of PostgreSQL.
const (
	foreignKeyViolation = "23503"
	uniqueViolation     = "23505"
	queryCanceled       = "57014"
)

// violates reports whether err says that a row of a table (without its schema) violates a constraint of this kind. In a
// distributed Postgres, the names of the table and of the constraint end with the number of a shard.
func violates(err error, code, table string) bool {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != code {
		return false
	}
	shard, found := strings.CutPrefix(refused.TableName, table)
	return found && strings.Trim(shard, "_0123456789") == ""
}
