package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/policy"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/idempotency"
	"github.com/almonerhq/almoner/shared/web"
	"github.com/almonerhq/almoner/shared/webhook"
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
	if isLimit(err) {
		return err
	}
	for _, own := range append(
		slices.Concat(membership.Errors(), useraccount.Errors(), webhook.Errors()),
		error(idempotency.ErrReused),
		client.ErrUnknown,
		grant.ErrPolicy,
		grant.ErrAlreadyUsed,
		policy.ErrChanged,
		audit.ErrNotAuthorized,
		session.ErrProofInvalid,
		session.ErrSecondFactor,
		session.ErrCodeNeeded,
		session.ErrCodeInvalid,
		authenticator.ErrExists,
		password.ErrLinkInvalid,
		password.ErrLastSignInMethod,
	) {
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
	ctx context.Context,
	tx pgx.Tx,
	condition string,
	args pgx.NamedArgs,
	reason grant.Reason,
	actor string,
) ([]grant.Grant, error) {
	rows, err := tx.Query(ctx, `select distinct g.tenant_id from account.grants g
		where g.state <> 'revoked' and `+condition+` order by 1`, args)
	if err != nil {
		return nil, fmt.Errorf("revoke grants: %w", err)
	}
	workspaces, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
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

func scanGrant(row pgx.CollectableRow) (grant.Grant, error) {
	var r grantRow
	if err := row.Scan(r.targets()...); err != nil {
		return grant.Grant{}, err
	}
	return *r.grant(), nil
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
