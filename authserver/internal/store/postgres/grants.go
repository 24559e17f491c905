package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/net/web"
)

var _ grant.GrantStore = (*Grants)(nil)

const grantColumns = `g.id, g.kind, g.client_id, g.user_id, g.tenant_id, g.permissions, g.resource, g.state,
  coalesce(g.generation, 0), g.refresh_hash, g.code_binding, g.created_at, g.last_used_at, g.ends_at, g.revoked_at,
  g.revoke_reason, g.given_up, g.taken_by, g.ending, coalesce(g.renewed_at, g.last_used_at)`

// grantTargets are the targets of grantColumns. A grant that an outer join did not find has no ID.
func grantTargets(g *grant.Grant) []any {
	return []any{(*zeronull.UUID)(&g.ID), (*zeronull.Text)(&g.Kind), (*zeronull.UUID)(&g.ClientID),
		(*zeronull.UUID)(&g.UserID), (*zeronull.UUID)(&g.WorkspaceID), &g.Permissions, (*zeronull.Text)(&g.Resource),
		(*zeronull.Text)(&g.State), &g.Generation, &g.RefreshHash, &g.CodeBinding, (*zeronull.Timestamptz)(&g.Created),
		&g.LastUsed, (*zeronull.Timestamptz)(&g.Ends), &g.RevokedAt, (*zeronull.Text)(&g.Reason), &g.GivenUp,
		&g.TakenBy, &g.Reuse, &g.Renewed}
}

// foundGrant returns a grant that was read into grantTargets, or nil if there was none.
func foundGrant(g grant.Grant) *grant.Grant {
	if g.ID == uuid.Nil {
		return nil
	}
	g.Permissions = ordered(g.Permissions)
	if g.Kind == client.Connector {
		g.Permissions = g.Permissions.Usable(g.Resource)
	}
	return &g
}

const (
	// A row of account.finished_upgrades says that no process of an earlier release is left.
	numberSQL = `
select nextval('account.approval_numbers')::int, now(),
  exists (select from account.finished_upgrades where name = '` + tokensCarryWorkspace + `')`
	approvedSQL = `select state, approvals from account.grants where tenant_id = $1 and id = $2`
)

// Approve assigns a number to an approval without changing the grant. It never returns the same number for two
// approvals of a grant, whichever release stored the last one.
func (g *Grants) Approve(ctx context.Context, key grant.Key) (grant.Approval, error) {
	ctx, cancel := g.withOperationLimit(ctx)
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue(numberSQL)
	batch.Queue(approvedSQL, key.WorkspaceID, key.ID)
	results := g.pool.SendBatch(ctx, batch)
	approval, last := grant.Approval{State: grant.Pending}, 0
	err := results.QueryRow().Scan(&approval.Number, &approval.Now, &approval.CarriesWorkspace)
	if err == nil {
		err = results.QueryRow().Scan(&approval.State, &last)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	approval.Number = max(approval.Number, last+1)
	return approval, unavailable("number approval", cmp.Or(err, results.Close()))
}

// WorkspaceOf returns the workspace of a grant, or grant.ErrUnknown.
func (g *Grants) WorkspaceOf(ctx context.Context, id uuid.UUID) (uuid.UUID, error) {
	return need(ctx, g.db, "read workspace of grant", fmt.Errorf("grant %s: %w", id, grant.ErrUnknown),
		pgx.RowTo[uuid.UUID], `select tenant_id from account.grants where id = $1`, id)
}

const (
	openSQL = `
with opened as (
  insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state,
  code_binding, ends_at, approvals)
  values (@id, @kind, @client, @user, @tenant, @permissions, @resource, 'pending', @binding, @ends, @approval)
  on conflict (tenant_id, id) do nothing
  returning id
)` + consentedSQL + ` from opened`

	// An approval of the same permissions and resource is the same approval, and records no event.
	reopenSQL = `
with former as (
  select permissions, resource from account.grants where tenant_id = @tenant and id = @id for update
), opened as (
  update account.grants g set code_binding = @binding, permissions = @permissions, resource = @resource,
    ends_at = @ends, approvals = @approval, created_at = now()
  from former where g.tenant_id = @tenant and g.id = @id
    and g.state = 'pending' and g.user_id = @user and g.client_id = @client and g.approvals < @approval
  returning g.id
)` + consentedSQL + ` from opened, former
where former.permissions <> @permissions::text[] or former.resource <> @resource`

	consentedSQL = `
insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, detail, request_id)
select gen_random_uuid(), @tenant, @user, 'user:' || @user, '` + audit.GrantConsented + `', 'grant:' || @id,
  jsonb_build_object('client_id', @client::text, 'permissions', to_jsonb(@permissions::text[])), @request`
)

// Open inserts a pending grant with its audit event and its mail, or binds the pending grant with the same id to a new
// code unless a later approval has done so; an event and a mail follow only if something else was approved. It ends the
// pending grants of approved.Instead. A connector's grant is narrowed to what the workspace's policy allows at that
// moment; Open returns grant.ErrPolicy if nothing is left. If the grant is not pending afterwards, Open changes nothing
// and returns grant.ErrAlreadyUsed with its state.
func (g *Grants) Open(ctx context.Context, approved grant.Grant, approval int) (state grant.State, err error) {
	err = g.atomically(ctx, "open grant", func(tx *transaction) {
		tx.stillApprovable(approved)
		allowed := tx.underPolicy(approved)
		tx.endOthers(allowed)
		args := pgx.NamedArgs{"id": allowed.ID, "kind": allowed.Kind, "client": allowed.ClientID,
			"user": allowed.UserID, "tenant": allowed.WorkspaceID, "permissions": allowed.Permissions.Strings(),
			"resource": allowed.Resource, "binding": allowed.CodeBinding, "ends": allowed.Ends, "approval": approval,
			"request": web.RequestID(ctx)}
		// The second statement sees a row that was inserted meanwhile.
		if tx.exec(openSQL, args) > 0 || tx.exec(reopenSQL, args) > 0 {
			tx.mailApproval(allowed)
		}
		tx.row(`select state from account.grants where tenant_id = @tenant and id = @id`, args).read(&state)
		tx.require(state == grant.Pending, grant.ErrAlreadyUsed)
		tx.answered(allowed.WorkspaceID, allowed.ClientID, allowed.UserID)
	})
	return state, err
}

// endOthers ends the pending grants of g.Instead. It fails with grant.ErrAlreadyUsed if one of them was redeemed. The
// lock makes concurrent approvals of a session see each other.
func (t *transaction) endOthers(g grant.Grant) {
	if len(g.Instead) == 0 {
		return
	}
	t.lock("approvals " + g.SignInID.String())
	t.sequentially()
	workspaces, ids := split(g.Instead)
	for _, other := range rowsOf(t, scanGrant, knownSQL, workspaces, ids) {
		ended := int64(1)
		if other.State == grant.Pending {
			ended = t.exec(denySQL, revocation(t.ctx, other.Key(), grant.ByUser, "user:"+g.UserID.String(), nil))
		}
		t.require(ended > 0 && other.Generation == 0, grant.ErrAlreadyUsed)
	}
}

// stillApprovable locks what an approval needs: the sign-in, the membership with the permissions, the client and, for a
// connector, the workspace's LLM integration. It fails with audit.ErrNotAuthorized if any of these has ended.
func (t *transaction) stillApprovable(g grant.Grant) {
	if g.SignInID == uuid.Nil {
		return
	}
	t.allowedBy(&audit.Authorization{
		UserID:      g.UserID,
		SignInID:    g.SignInID,
		WorkspaceID: g.WorkspaceID,
		Permissions: g.Permissions,
	}, approvableUserSQL)
	if g.Kind.Traits().NeedsLLM {
		t.require(t.has(`select true from account.tenant_features
			where tenant_id = $1 and feature = 'llm_integration' and enabled for share`, g.WorkspaceID),
			audit.ErrNotAuthorized)
	}
	t.require(t.has(`select true from account.oauth_clients where id = $1 and deleted_at is null for share`,
		g.ClientID), audit.ErrNotAuthorized)
}

const (
	revokeSQL = revokeFrom + `state <> 'revoked'` + revokeEvent
	denySQL   = revokeFrom + `state = 'pending'` + revokeEvent

	revokeFrom = `
with ended as (
  update account.grants set state = 'revoked', revoked_at = now(), revoke_reason = @reason, ending = @ending::jsonb
  where tenant_id = @tenant and id = @id and `
	revokeEvent = `
  returning id, tenant_id, user_id, client_id
)
insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, detail, request_id)
select gen_random_uuid(), tenant_id, user_id, @actor, '` + audit.GrantRevoked + `', 'grant:' || id,
  jsonb_strip_nulls(jsonb_build_object('reason', @reason::text, 'client_id', client_id::text,
    'ending', @ending::jsonb)), @request
from ended`
)

// Deny ends a pending grant and records it, in one durable commit, or returns grant.ErrAlreadyUsed.
func (g *Grants) Deny(ctx context.Context, key grant.Key, actor string) error {
	ended, err := g.exec(ctx, "deny grant", denySQL, revocation(ctx, key, grant.ByUser, actor, nil))
	if err == nil && ended == 0 {
		err = grant.ErrAlreadyUsed
	}
	return err
}

// confirmSQL writes to the log of Postgres, so that its commit waits for the commits before it to be durable.
const confirmSQL = `select pg_logical_emit_message(true, 'almoner', '')`

// Revoke ends a grant and records the reason, in one durable commit (G9). A grant that has already ended keeps its
// first reason. An earlier call may have ended it and not waited for a synchronous standby, so this call waits too.
func (g *Grants) Revoke(
	ctx context.Context, key grant.Key, reason grant.Reason, actor string, reuse *grant.Reuse,
) error {
	ctx, cancel := g.withOperationLimit(ctx)
	defer cancel()
	args := revocation(ctx, key, reason, actor, reuse)
	if g.mails != nil && reason == grant.Replayed {
		return g.revokeReplayed(ctx, args)
	}
	tag, err := g.pool.Exec(ctx, revokeSQL, args)
	if err == nil && tag.RowsAffected() == 0 {
		_, err = g.pool.Exec(ctx, confirmSQL)
	}
	return unavailable("revoke grant", err)
}

func revocation(
	ctx context.Context, key grant.Key, reason grant.Reason, actor string, reuse *grant.Reuse,
) pgx.NamedArgs {
	return pgx.NamedArgs{"id": key.ID, "tenant": key.WorkspaceID, "reason": string(reason), "actor": actor,
		"ending": reuse, "request": web.RequestID(ctx)}
}

const (
	grantSQL = `select ` + grantColumns + ` from account.grants g where g.tenant_id = $1 and g.id = $2`
	knownSQL = `select ` + grantColumns + ` from account.grants g where g.tenant_id = any ($1) and g.id = any ($2)`
)

// Known reads the grants that exist among keys.
func (g *Grants) Known(ctx context.Context, keys []grant.Key) ([]grant.Grant, error) {
	workspaces, ids := split(keys)
	return list(ctx, g.db, "read grants", scanGrant, knownSQL, workspaces, ids)
}

func split(keys []grant.Key) (workspaces, ids []uuid.UUID) {
	for _, key := range keys {
		workspaces, ids = append(workspaces, key.WorkspaceID), append(ids, key.ID)
	}
	return workspaces, ids
}

// Grant reads one grant, or returns grant.ErrUnknown.
func (g *Grants) Grant(ctx context.Context, key grant.Key) (grant.Grant, error) {
	return need(ctx, g.db, "read grant", fmt.Errorf("grant %s: %w", key.ID, grant.ErrUnknown), scanGrant, grantSQL,
		key.WorkspaceID, key.ID)
}

// mailApproval tells the user about a new connection, in the transaction that stores it.
func (t *transaction) mailApproval(g grant.Grant) {
	if !t.sendsMail() {
		return
	}
	data := mail.Data{Permissions: titles(g.Permissions)}
	t.row(`select c.name, t.name from account.oauth_clients c, account.tenants t
		where c.id = $1 and t.id = $2`, g.ClientID, g.WorkspaceID).read(&data.Application, &data.Workspace)
	t.mail(g.UserID, mail.ConnectionApproved, data)
}

// revokeReplayed revokes a grant because of a replay, and tells its user. A grant that has already ended is not
// mentioned again; its end may still have to reach a synchronous standby, as in Revoke.
func (g *Grants) revokeReplayed(ctx context.Context, revocation pgx.NamedArgs) error {
	return g.atomically(ctx, "revoke grant", func(tx *transaction) {
		if tx.exec(revokeSQL, revocation) == 0 {
			tx.exec(confirmSQL)
			return
		}
		var user uuid.UUID
		var data mail.Data
		found := tx.row(`select g.user_id, c.name, t.name from account.grants g
			join account.oauth_clients c on c.id = g.client_id join account.tenants t on t.id = g.tenant_id
			where g.tenant_id = $1 and g.id = $2`, revocation["tenant"], revocation["id"]).
			find(&user, &data.Application, &data.Workspace)
		if found { // else the grant ends without a mail
			tx.mail(user, mail.ConnectionReplayed, data)
		}
	})
}

func scanGrant(row pgx.CollectableRow) (grant.Grant, error) {
	var g grant.Grant
	if err := row.Scan(grantTargets(&g)...); err != nil {
		return grant.Grant{}, err
	}
	return *foundGrant(g), nil
}
