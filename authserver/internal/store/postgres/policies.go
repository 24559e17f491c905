package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/policy"
)

const (
	policyColumns = `p.platforms, p.permissions, coalesce(p.days, 0)`
	policySQL     = `select ` + policyColumns + ` from account.tenants t
		left join account.connector_policies p on p.tenant_id = t.id where t.id = $1`
)

// policyTargets are the targets of policyColumns. A policy that an outer join did not find has no days.
func policyTargets(p *workspace.ConnectorPolicy) []any {
	return []any{&p.Platforms, &p.Permissions, &p.Days}
}

// foundPolicy returns a policy that was read into policyTargets, or the default if there was none.
func foundPolicy(p workspace.ConnectorPolicy) workspace.ConnectorPolicy {
	if p.Days == 0 {
		return workspace.DefaultConnectorPolicy()
	}
	p.Platforms = append([]workspace.Platform(nil), p.Platforms...) // nil if there are none, as events have it
	p.Permissions = ordered(p.Permissions)
	return p
}

func scanPolicy(row pgx.CollectableRow) (p workspace.ConnectorPolicy, err error) {
	err = row.Scan(policyTargets(&p)...)
	return foundPolicy(p), err
}

// ConnectorPolicy reads the policy of a workspace, or returns admin.ErrNoWorkspace.
func (g *Grants) ConnectorPolicy(ctx context.Context, workspaceID uuid.UUID) (workspace.ConnectorPolicy, error) {
	return need(ctx, g.db, "read connector policy", admin.ErrNoWorkspace, scanPolicy, policySQL, workspaceID)
}

// policy reads the policy of a workspace, or fails with admin.ErrNoWorkspace.
func (t *transaction) policy(workspaceID uuid.UUID) workspace.ConnectorPolicy {
	var found workspace.ConnectorPolicy
	t.require(t.row(policySQL, workspaceID).find(policyTargets(&found)...), admin.ErrNoWorkspace)
	return foundPolicy(found)
}

// underPolicy narrows an approval to what the policy allows, or fails with grant.ErrPolicy if nothing is left. The lock
// on the workspace makes a concurrent policy change wait until this transaction ends, so that the change applies to the
// rows written here. The lock is a separate statement, because a statement that waited would still read the old policy.
func (t *transaction) underPolicy(approved grant.Grant) grant.Grant {
	if approved.Kind != client.Connector {
		return approved
	}
	t.exec(`select from account.tenants where id = $1 for share`, approved.WorkspaceID)
	var now time.Time
	var platform string
	t.row(`select now(), coalesce(connector_platform, '') from account.oauth_clients where id = $1`,
		approved.ClientID).read(&now, &platform)
	limit := t.policy(approved.WorkspaceID)
	narrowed, left := policy.Narrow(limit, approved, workspace.PlatformOf(platform), now)
	t.require(left, grant.ErrPolicy)
	return narrowed
}

// The effect of a policy on a connector's grant g that has not ended: policy.Narrow in SQL, for many grants
// at once. A pending grant counts while its code may still be redeemed: a consent page is answered within an
// hour, and its code is valid for a minute.
const (
	policyConcerns = `g.tenant_id = @tenant and g.kind = 'connector' and g.state <> 'revoked' and g.ends_at > now()
  and (g.state = 'active' or g.created_at > now() - interval '2 hours')`
	policyEnds = `(not g.permissions && @permissions or g.created_at + @life <= now() or not exists (
    select from account.oauth_clients c where c.id = g.client_id
    and coalesce(c.connector_platform, 'other') = any(@platforms)))`
	policyCuts    = `not g.permissions <@ @permissions`
	policyHastens = `g.ends_at > g.created_at + @life`
)

func policyArgs(workspaceID uuid.UUID, p workspace.ConnectorPolicy) pgx.NamedArgs {
	return pgx.NamedArgs{"tenant": workspaceID, "platforms": append([]workspace.Platform{}, p.Platforms...),
		"permissions": p.Permissions.Strings(), "days": p.Days, "life": p.Life()}
}

// countAtMost is the most grants that a statement counts, the latest first.
const countAtMost = 10_000

// effectSQL counts the connections that a policy would change now. Like every count of connections, it omits approvals
// whose code was not redeemed.
const effectSQL = `
select count(*) filter (where ends), count(*) filter (where cut and not ends), count(*) filter (where hastened
  and not ends), count(*) > @most
from (select ` + policyEnds + ` as ends, ` + policyCuts + ` as cut, ` + policyHastens + ` as hastened
  from account.grants g
  where ` + policyConcerns + ` and g.state = 'active' and ` + notOverSQL + ` order by g.created_at desc, g.id desc
  limit @next) g`

func effectArgs(workspaceID uuid.UUID, p workspace.ConnectorPolicy) pgx.NamedArgs {
	args := policyArgs(workspaceID, p)
	args["most"], args["next"] = countAtMost, countAtMost+1
	return args
}

// ConnectorPolicyEffect counts the connections that a policy would change now.
func (g *Grants) ConnectorPolicyEffect(
	ctx context.Context, workspaceID uuid.UUID, p workspace.ConnectorPolicy,
) (e policy.Effect, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*g.operationLimit)
	defer cancel()
	err = g.pool.QueryRow(ctx, effectSQL, effectArgs(workspaceID, p)).Scan(&e.End, &e.Lose, &e.Sooner, &e.More)
	return e, unavailable("evaluate connector policy", err)
}

// ReplaceConnectorPolicy replaces the policy of a workspace and narrows the existing grants, with an event each, in one
// transaction, or returns admin.ErrNoWorkspace. Setting the same policy again changes nothing and writes no event. seen
// is the digest of the policy that the caller saw, or "" for an operator: if the policy changed since it was read,
// nothing changes and the error is policy.ErrChanged.
func (g *Grants) ReplaceConnectorPolicy(
	ctx context.Context, workspaceID uuid.UUID, seen string, after workspace.ConnectorPolicy, event audit.Event,
) (change policy.Change, err error) {
	err = g.change(ctx, "set connector policy", &event, func(tx *transaction) {
		tx.exec(`select from account.tenants where id = $1 for no key update`, workspaceID)
		change = policy.Change{Before: tx.policy(workspaceID), After: after}
		if change.Before.Equal(after) {
			tx.noEvent = true
			return
		}
		asSeen := change.Before.Digest() == seen || seen == "" && event.Authorization.Operator
		tx.require(asSeen, policy.ErrChanged)
		tx.exec(`
insert into account.connector_policies (tenant_id, platforms, permissions, days, changed_at)
  values (@tenant, @platforms, @permissions, @days, now())
on conflict (tenant_id) do update set platforms = @platforms, permissions = @permissions, days = @days,
  changed_at = excluded.changed_at`, policyArgs(workspaceID, after))
		tx.enforce(workspaceID, &change, event.Actor)
		event.Detail = map[string]any{
			"before": policyDetail(change.Before), "after": policyDetail(change.After),
			"ended": change.Effect.End, "lost_permissions": change.Effect.Lose, "end_sooner": change.Effect.Sooner,
		}
	})
	return change, err
}

func policyDetail(p workspace.ConnectorPolicy) map[string]any {
	return map[string]any{"platforms": p.Platforms, "permissions": p.Permissions.Strings(), "days": p.Days}
}

// narrowSQL narrows the grants g that match a condition. It locks rows in the order of their ids, as revokeInSQL does.
const narrowSQL = `
with chosen as (
  select g.id, g.permissions, g.ends_at, now() as at, least(g.ends_at, g.created_at + @life) as sooner,
    array(select p from unnest(g.permissions) with ordinality u(p, n) where p = any(@permissions) order by n) as kept
  from account.grants g
  where g.tenant_id = @in and %s order by g.id for update
), g as (
  update account.grants g set permissions = chosen.kept, ends_at = chosen.sooner, narrowed_at = chosen.at
  from chosen where g.tenant_id = @in and g.id = chosen.id
  returning g.id, g.tenant_id, g.user_id, g.client_id, g.permissions, g.ends_at,
    chosen.permissions as former, chosen.ends_at as formerly
)
insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, detail, request_id)
select gen_random_uuid(), tenant_id, user_id, @actor, '` + audit.GrantNarrowed + `', 'grant:' || id,
  jsonb_build_object(
  'reason', @reason::text, 'client_id', client_id::text, 'permissions', to_jsonb(permissions), 'ends_at', ends_at,
  'former_permissions', to_jsonb(former), 'former_ends_at', formerly), @request
from g`

// enforce ends or narrows the grants that exceed the policy (P2). A policy that only raises limits affects
// none.
func (t *transaction) enforce(workspaceID uuid.UUID, change *policy.Change, actor string) {
	e := &change.Effect
	t.row(effectSQL, effectArgs(workspaceID, change.After)).read(&e.End, &e.Lose, &e.Sooner, &e.More)
	if change.After.Includes(change.Before) && e.End+e.Lose+e.Sooner == 0 {
		return
	}
	p := ending{
		workspaceID: workspaceID,
		policy:      &change.After,
		reason:      grant.ByPolicy,
		actor:       actor,
	}.begin(t, endAtOnce)
	change.EndedGrants = p.ended
}
