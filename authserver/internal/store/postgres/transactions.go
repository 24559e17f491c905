package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/policy"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/database/pg"
	"github.com/almonerhq/almoner/shared/net/web"
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
func (s *Store) ServeCommands() { s.limit, s.operationLimit = commandTime, commandTime }

// withOperationLimit returns a context with the time limit of an operation that atomically does not run.
func (s *Store) withOperationLimit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.operationLimit)
}

// errNoEvent is returned by a change that is to be committed without its event, since it changed nothing or recorded
// another event.
var errNoEvent = errors.New("no event")

// changed returns errNoEvent if a statement changed no row.
func changed(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.RowsAffected() == 0 {
		return errNoEvent
	}
	return err
}

// change runs do like atomically, if what allowed the event still holds, and records the event.
func (s *Store) change(ctx context.Context, op string, event *audit.Event, do func(pgx.Tx) error) error {
	_, err := s.changeIf(ctx, op, event, do)
	return err
}

// changeIf is change. It returns false if do returned errNoEvent.
func (s *Store) changeIf(ctx context.Context, op string, event *audit.Event, do func(pgx.Tx) error) (bool, error) {
	return s.recorded(ctx, op, event, func(tx pgx.Tx) error {
		if err := stillAllowed(ctx, tx, event.Authorization); err != nil {
			return err
		}
		return do(tx)
	})
}

// recorded runs do like atomically and records the event. It returns false if do returned errNoEvent.
func (s *Store) recorded(
	ctx context.Context, op string, event *audit.Event, do func(pgx.Tx) error,
) (recorded bool, err error) {
	err = s.atomically(ctx, op, func(tx pgx.Tx) error {
		err := do(tx)
		if recorded = err == nil; recorded {
			return s.record(ctx, tx, *event)
		}
		if errors.Is(err, errNoEvent) {
			return nil
		}
		return err
	})
	return recorded && err == nil, err
}

// atomically runs do in the transaction of ctx (Once), or in a new one if ctx has none. It retries a transaction that
// Postgres aborted for a deadlock, a lock timeout or a serialization failure. Domain errors are returned unchanged; all
// others wrap store.ErrUnavailable.
func (s *Store) atomically(ctx context.Context, op string, do func(pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	defer s.recent.Purge()
	var err error
	for range deadlockTries {
		if w := writingOf(ctx); w != nil { // Once tries the whole transaction again
			err = do(w.tx)
			break
		}
		if err = pgx.BeginFunc(ctx, s.pool, do); !retryable(err) {
			break
		}
	}
	if _, limited := errors.AsType[*membership.LimitError](err); limited {
		return err
	}
	if refused, ok := errors.AsType[*admin.Refusal](err); ok {
		return refused
	}
	for _, own := range append(slices.Concat(membership.Errors(), useraccount.Errors(), webhook.Errors()),
		error(rest.ErrReused), client.ErrUnknown, grant.ErrPolicy, grant.ErrAlreadyUsed, policy.ErrChanged,
		audit.ErrNotAuthorized, session.ErrProofInvalid, session.ErrSecondFactor, session.ErrCodeNeeded,
		session.ErrCodeInvalid, authenticator.ErrExists, password.ErrLinkInvalid, password.ErrLastSignInMethod) {
		if errors.Is(err, own) {
			return own
		}
	}
	return unavailable(op, err)
}

// sequentially makes a distributed Postgres visit one shard after the other until the transaction ends. Otherwise it
// refuses to change a table that is copied to each node, or refers to one, after a statement about several workspaces.
// Other servers ignore the setting.
func sequentially(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `select set_config('citus.multi_shard_modify_mode', 'sequential', true)`)
	return err
}

// revokeInSQL revokes the grants g of one workspace that match a condition. It locks rows in the order of their ids.
const revokeInSQL = `
with chosen as (
  select g.id, now() as at, g.state as former from account.grants g
  where g.tenant_id = @in and g.state <> 'revoked' and %s order by g.id for update
), g as (
  update account.grants g set state = 'revoked', revoked_at = chosen.at, revoke_reason = @reason
  from chosen where g.tenant_id = @in and g.id = chosen.id returning g.*, chosen.former
), recorded as (
  insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, detail, request_id)
  select gen_random_uuid(), tenant_id, user_id, @actor, '` + audit.GrantRevoked + `', 'grant:' || id,
    jsonb_build_object('reason', @reason::text, 'client_id', client_id::text, 'unused', former = 'pending'), @request
  from g
)
select ` + grantColumns + ` from g`

// revokeWhere revokes every grant g that matches the condition, in the caller's transaction, and records an audit event
// for each. The condition selects at most endAtOnce grants. It goes through the workspaces in the order of their ids,
// so that two calls cannot deadlock.
func revokeWhere(
	ctx context.Context, tx pgx.Tx, condition string, args pgx.NamedArgs, reason grant.Reason, actor string,
) ([]grant.Grant, error) {
	workspaces, err := collect(ctx, tx, pgx.RowTo[uuid.UUID], `select distinct g.tenant_id from account.grants g
		where g.state <> 'revoked' and `+condition+` order by 1`, args)
	if err != nil {
		return nil, fmt.Errorf("revoke grants: %w", err)
	}
	return revokeIn(ctx, tx, workspaces, condition, args, reason, actor)
}

// revokeIn is revokeWhere for the grants of these workspaces.
func revokeIn(
	ctx context.Context,
	tx pgx.Tx,
	workspaces []uuid.UUID,
	condition string,
	args pgx.NamedArgs,
	reason grant.Reason,
	actor string,
) (ended []grant.Grant, err error) {
	if len(workspaces) == 0 {
		return nil, nil
	}
	batch := &pgx.Batch{}
	for _, workspaceID := range workspaces {
		each := maps.Clone(args)
		each["in"], each["reason"], each["actor"] = workspaceID, string(reason), actor
		if each["request"] == nil {
			each["request"] = web.RequestID(ctx)
		}
		batch.Queue(fmt.Sprintf(revokeInSQL, condition), each).Query(func(rows pgx.Rows) error {
			revoked, err := pgx.CollectRows(rows, scanGrant)
			ended = append(ended, revoked...)
			return err
		})
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("revoke grants: %w", err)
	}
	return ended, nil
}

// record appends an audit event in the caller's transaction, with the mail that mail.Notices names for the action.
func (s *Store) record(ctx context.Context, tx pgx.Tx, e audit.Event) error {
	if _, err := tx.Exec(ctx, insertEvent, eventArgs(e)); err != nil {
		return err
	}
	return s.mailNotice(ctx, tx, e)
}

// retryable reports whether a transaction failed because of a concurrent one. If a grant is approved twice at once,
// the second approval violates grants_by_id, which "on conflict (tenant_id, id)" does not cover.
func retryable(err error) bool {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return false
	}
	return slices.Contains([]string{"40P01", "40001", "55P03"}, refused.Code) ||
		violates(err, uniqueViolation, "grants")
}

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

// Once implements rest.AnswerStore. The methods of the store that effect calls use the transaction of its context.
func (s *Store) Once(
	ctx context.Context, key rest.Key, effect func(context.Context) (rest.Answer, error),
) (answer rest.Answer, err error) {
	var w *writing
	var failure error
	table := rest.AnswerTable{Name: answersTable, Box: s.answers}
	err = s.atomically(ctx, "answer once", func(tx pgx.Tx) (err error) {
		w = &writing{tx: tx}
		failure = nil
		answer, err = table.Once(ctx, tx, key, func(ctx context.Context, _ pgx.Tx) (rest.Answer, error) {
			answer, err := effect(context.WithValue(ctx, writingKey{}, w))
			failure = err
			return answer, err
		})
		return err
	})
	if failure != nil {
		return rest.Answer{}, failure
	}
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

// collectOne reads the row of a query, or returns pgx.ErrNoRows.
func collectOne[T any](
	ctx context.Context, from querier, scan pgx.RowToFunc[T], sql string, args ...any,
) (row T, err error) {
	rows, err := from.Query(ctx, sql, args...)
	if err != nil {
		return row, err
	}
	return pgx.CollectOneRow(rows, scan)
}

// list is collect with the time limit of an operation.
func list[T any](
	ctx context.Context, s *Store, op string, scan pgx.RowToFunc[T], sql string, args ...any,
) ([]T, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	found, err := collect(ctx, s.reader(ctx), scan, sql, args...)
	return found, unavailable(op, err)
}

// listLong is list with twice the time.
func listLong[T any](
	ctx context.Context, s *Store, op string, scan pgx.RowToFunc[T], sql string, args ...any,
) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.operationLimit)
	defer cancel()
	found, err := collect(ctx, s.reader(ctx), scan, sql, args...)
	return found, unavailable(op, err)
}

// one reads the row of a query, like list. It returns false if there is none.
func one[T any](
	ctx context.Context, s *Store, op string, scan pgx.RowToFunc[T], sql string, args ...any,
) (row T, exists bool, err error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	row, err = collectOne(ctx, s.reader(ctx), scan, sql, args...)
	if errors.Is(err, pgx.ErrNoRows) {
		return row, false, nil
	}
	return row, err == nil, unavailable(op, err)
}

// reader returns the transaction of ctx, or the pool if there is none. A write that holds a connection must not wait
// for another one.
func (s *Store) reader(ctx context.Context) querier {
	if w := writingOf(ctx); w != nil {
		return w.tx
	}
	return s.pool
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
