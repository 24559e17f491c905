package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/client"
	"github.com/almonerhq/almoner/authserver/internal/grant"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/web"
)

var _ grant.Ledger = (*Store)(nil)

// factsSQL answers in one round trip everything that an exchange or a refresh asks before it decides.
const factsSQL = `
select now(), ` + clientColumns + `, ` + grantColumns + `,
  u.disabled_at is not null, m.user_id is not null, coalesce(m.permissions, '{}'), coalesce(f.enabled, false)
from (select 1) one
left join account.oauth_clients c on c.id = $1 and c.deleted_at is null
left join account.grants g on g.id = $2
left join account.users u on u.id = g.user_id
left join account.memberships m on m.tenant_id = g.tenant_id and m.user_id = g.user_id
left join account.tenant_features f on f.tenant_id = g.tenant_id and f.feature = 'llm_integration'`

// Facts reads the client, the grant and the standing of its user in one statement, whose arguments are nameless as in advance.
func (s *Store) Facts(ctx context.Context, clientID, grantID uuid.UUID) (grant.Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	var facts grant.Facts
	var c clientRow
	var g grantRow
	var held []string
	row := s.pool.QueryRow(ctx, factsSQL, clientID, grantID)
	targets := append([]any{&facts.Now}, c.targets()...)
	targets = append(targets, g.targets()...)
	targets = append(targets, &g.userDisabled, &facts.Member, &held, &facts.LLM)
	if err := row.Scan(targets...); err != nil {
		return grant.Facts{}, unavailable("read facts", err)
	}
	facts.Client, facts.Grant = c.client(), g.grant()
	facts.UserDisabled = g.userDisabled != nil && *g.userDisabled
	facts.Held = perm.FromStrings(held)
	return facts, nil
}

// A grantRow is a grant that an outer join may have left out.
type grantRow struct {
	id, clientID, userID, tenantID   *uuid.UUID
	kind, resource, state, reason    *string
	permissions                      []string
	generation                       *int32
	refreshHash, codeBinding         []byte
	created, lastUsed, ends, revoked *time.Time
	userDisabled                     *bool
}

const grantColumns = `g.id, g.kind, g.client_id, g.user_id, g.tenant_id, g.permissions, g.resource, g.state, g.generation,
  g.refresh_hash, g.code_binding, g.created_at, g.last_used_at, g.ends_at, g.revoked_at, g.revoke_reason`

func (r *grantRow) targets() []any {
	return []any{&r.id, &r.kind, &r.clientID, &r.userID, &r.tenantID, &r.permissions, &r.resource, &r.state, &r.generation,
		&r.refreshHash, &r.codeBinding, &r.created, &r.lastUsed, &r.ends, &r.revoked, &r.reason}
}

func (r *grantRow) grant() *grant.Grant {
	if r.id == nil {
		return nil
	}
	g := &grant.Grant{
		ID: *r.id, Kind: client.Kind(*r.kind), ClientID: *r.clientID, UserID: *r.userID, TenantID: *r.tenantID,
		Permissions: perm.FromStrings(r.permissions), Resource: *r.resource, State: grant.State(*r.state),
		Generation: uint32(*r.generation), RefreshHash: r.refreshHash, CodeBinding: r.codeBinding,
		Created: *r.created, LastUsed: r.lastUsed, Ends: *r.ends, RevokedAt: r.revoked,
	}
	if r.reason != nil {
		g.Reason = grant.Reason(*r.reason)
	}
	return g
}

const openSQL = `
with opened as (
  insert into account.grants as g (id, kind, client_id, user_id, tenant_id, permissions, resource, state, code_binding, ends_at)
  values (@id, @kind, @client, @user, @tenant, @permissions, @resource, 'pending', @binding, @ends)
  on conflict (id) do update set code_binding = excluded.code_binding, permissions = excluded.permissions, ends_at = excluded.ends_at,
    approvals = g.approvals + 1
    where g.state = 'pending' and g.user_id = excluded.user_id and g.client_id = excluded.client_id
  returning g.state, g.approvals
), noted as (
  insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, detail, request_id)
  select gen_random_uuid(), @tenant, @user, 'user:' || @user, 'grant.consented', 'grant:' || @id,
    jsonb_build_object('client_id', @client::text, 'permissions', to_jsonb(@permissions::text[])), @request
  from opened
)
select state, approvals from opened
union all
select state, approvals from account.grants where id = @id and not exists (select from opened)`

// Open inserts a pending grant with its audit event, or binds the pending one of the same id to a new code. A connector's is what
// the workspace's policy allows at that moment, or grant.ErrPolicy.
func (s *Store) Open(ctx context.Context, approved grant.Grant) (grant.Opened, error) {
	var opened grant.Opened
	err := s.atomically(ctx, "open grant", func(tx pgx.Tx) error {
		g, err := underPolicy(ctx, tx, approved)
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, openSQL, pgx.NamedArgs{
			"id": g.ID, "kind": g.Kind, "client": g.ClientID, "user": g.UserID, "tenant": g.TenantID,
			"permissions": g.Permissions.Strings(), "resource": g.Resource, "binding": g.CodeBinding, "ends": g.Ends,
			"request": web.RequestID(ctx),
		})
		if err != nil {
			return err
		}
		if opened, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[grant.Opened]); err != nil {
			return err
		}
		return answered(ctx, tx, g.TenantID, g.ClientID, g.UserID)
	})
	return opened, err
}

// Activate moves a pending grant to generation 1. It commits durably: the use of a code must outlive a crash (G1).
func (s *Store) Activate(ctx context.Context, id uuid.UUID, attempt grant.Attempt) (grant.Fence, error) {
	return s.advance(ctx, "activate grant", 0, `
update account.grants set state = 'active', generation = 1, refresh_hash = $2, code_binding = $3, last_used_at = now()
where id = $1 and (state = 'pending' or (state = 'active' and generation = 1 and refresh_hash = $2))`, id, attempt.Hash, attempt.Binding)
}

// Advance moves an active grant on to generation. Its commit does not wait for the disk: the Register holds the newer truth, and
// only if both lose it in the same fraction of a second is a superseded token the current one again. The setting is the
// transaction's own, and the transaction is this statement, so it costs no trip; with commits that matter it has nothing to do.
func (s *Store) Advance(ctx context.Context, id uuid.UUID, generation uint32, hash []byte) (grant.Fence, error) {
	return s.advance(ctx, "advance grant", int32(generation)-1, `
with hasty as materialized (select set_config('synchronous_commit', 'off', true))
update account.grants set generation = $2, refresh_hash = $3, last_used_at = now() from hasty
where id = $1 and state = 'active' and (generation < $2 or (generation = $2 and refresh_hash = $3))`, id, int32(generation), hash)
}

// advance runs a conditional update of the grant whose id is the first of args, and which is to leave the generation before. Where it
// touched nothing, it reads why. Its arguments have no names, for those are looked for in the text each time.
func (s *Store) advance(ctx context.Context, op string, before int32, update string, args ...any) (grant.Fence, error) {
	waiting, stop := context.WithTimeout(ctx, acquireTimeout)
	defer stop()
	connection, err := s.pool.Acquire(waiting)
	if err != nil {
		return grant.Refused, fmt.Errorf("%w: %w", grant.ErrNotCommitted, unavailable(op, err))
	}
	defer connection.Release()
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout) // of its own, however long the connection took
	defer cancel()
	tag, err := connection.Exec(ctx, update, args...)
	if err != nil {
		return grant.Refused, uncommitted(op, err)
	}
	if tag.RowsAffected() == 1 {
		return grant.Passed, nil
	}
	var state string
	var generation int32
	err = connection.QueryRow(ctx, `select state, generation from account.grants where id = $1`, args[0]).Scan(&state, &generation)
	if errors.Is(err, pgx.ErrNoRows) {
		return grant.Refused, nil
	}
	if err != nil {
		return grant.Refused, uncommitted(op, err)
	}
	// Revoked while this very step was under way: the winner of a race keeps its answer, which is dead already.
	if grant.State(state) == grant.Revoked && generation == before {
		return grant.Overtaken, nil
	}
	return grant.Refused, nil
}

const revokeSQL = `
with ended as (
  update account.grants set state = 'revoked', revoked_at = now(), revoke_reason = @reason
  where id = @id and state <> 'revoked'
  returning id, tenant_id, user_id, client_id
)
insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, detail, request_id)
select gen_random_uuid(), tenant_id, user_id, @actor, 'grant.revoked', 'grant:' || id,
  jsonb_build_object('reason', @reason::text, 'client_id', client_id::text), @request
from ended`

// Revoke ends a grant and notes why, in one durable commit (G9). One that has ended keeps its first reason.
func (s *Store) Revoke(ctx context.Context, id uuid.UUID, reason grant.Reason, actor string) error {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	args := pgx.NamedArgs{"id": id, "reason": string(reason), "actor": actor, "request": web.RequestID(ctx)}
	if _, err := s.pool.Exec(ctx, revokeSQL, args); err != nil {
		return unavailable("revoke grant", err)
	}
	return nil
}

// Grant reads one grant, or returns pgx.ErrNoRows as ErrNoGrant.
func (s *Store) Grant(ctx context.Context, id uuid.UUID) (grant.Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	var row grantRow
	err := s.pool.QueryRow(ctx, `select `+grantColumns+` from account.grants g where g.id = $1`, id).Scan(row.targets()...)
	if errors.Is(err, pgx.ErrNoRows) {
		return grant.Grant{}, fmt.Errorf("grant %s: %w", id, ErrNoGrant)
	}
	if err != nil {
		return grant.Grant{}, unavailable("read grant", err)
	}
	return *row.grant(), nil
}

// ErrNoGrant says that there is no such grant.
var ErrNoGrant = errors.New("no such grant")
