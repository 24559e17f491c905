package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

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

// atomically runs do in one transaction, which is that of ctx if it has one (Once). It retries a transaction that
// Postgres aborted for a deadlock, a lock timeout or a serialization failure. Domain errors are returned unchanged; all
// others wrap store.ErrUnavailable.
func (s *Store) atomically(ctx context.Context, op string, do func(pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*acquireTimeout)
	defer cancel()
	defer s.recent.Purge()
	var err error
	for range deadlockTries {
		if w := writingOf(ctx); w != nil { // Once tries the whole transaction again
			err = do(w.tx)
			break
		}
		err = pgx.BeginFunc(ctx, s.pool, do)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) ||
			(refused.Code != "40P01" && refused.Code != "40001" && refused.Code != "55P03") {
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

// revokeWhere revokes every grant g that matches the condition, in the caller's transaction, with an audit
// event each. It locks rows in the order of their ids, so that two calls cannot deadlock.
func revokeWhere(
	ctx context.Context,
	tx pgx.Tx,
	condition string,
	args pgx.NamedArgs,
	reason grant.Reason,
	actor string,
) ([]grant.Grant, error) {
	args["reason"], args["actor"], args["request"] = string(reason), actor, web.RequestID(ctx)
	rows, err := tx.Query(ctx, `
with chosen as (
  select g.id from account.grants g where g.state <> 'revoked' and `+condition+` order by g.id for update
), g as (
  update account.grants set state = 'revoked', revoked_at = now(), revoke_reason = @reason
  where id in (select id from chosen) returning *
), recorded as (
  insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, detail, request_id)
  select gen_random_uuid(), tenant_id, user_id, @actor, '`+audit.GrantRevoked+`', 'grant:' || id,
    jsonb_build_object('reason', @reason::text, 'client_id', client_id::text), @request
  from g
)
select `+grantColumns+` from g`, args)
	if err != nil {
		return nil, fmt.Errorf("revoke grants: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (grant.Grant, error) {
		var r grantRow
		if err := row.Scan(r.targets()...); err != nil {
			return grant.Grant{}, err
		}
		return *r.grant(), nil
	})
}

// record appends an audit event in the caller's transaction.
func record(ctx context.Context, tx pgx.Tx, e audit.Event) error {
	_, err := tx.Exec(ctx, insertEvent, eventArgs(e))
	return err
}
