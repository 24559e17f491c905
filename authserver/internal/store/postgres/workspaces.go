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
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

// AddOrganisation inserts an organisation with its event.
func (a *Accounts) AddOrganisation(ctx context.Context, id uuid.UUID, name string, event audit.Event) error {
	return a.change(ctx, "add organisation", &event, func(tx *transaction) {
		tx.exec(`insert into account.organisations (id, name) values ($1, $2)`, id, name)
	})
}

// Organisations lists all organisations by name.
func (a *Accounts) Organisations(ctx context.Context) ([]admin.Organisation, error) {
	return listLong(ctx, a.db, "list organisations", pgx.RowToStructByName[admin.Organisation],
		`select id, name, created_at as created from account.organisations order by name, id`)
}

// AddWorkspace inserts a workspace with its event, or returns admin.ErrNoOrganisation.
func (a *Accounts) AddWorkspace(ctx context.Context, id, organisation uuid.UUID, name string, event audit.Event) error {
	return a.change(ctx, "add tenant", &event, func(tx *transaction) {
		tx.exec(`insert into account.tenants (id, organisation_id, name) values ($1, $2, $3)`, id, organisation, name)
		tx.violation(foreignKeyViolation, "tenants", admin.ErrNoOrganisation)
	})
}

const workspacesSQL = `
select t.id, t.organisation_id, o.name as organisation, t.name, t.created_at as created,
  coalesce((select jsonb_agg(jsonb_build_object('name', m.module, 'enabled', m.enabled, 'provisioned', m.provisioned)
      order by m.module)
    from account.tenant_modules m where m.tenant_id = t.id), '[]') as modules,
  coalesce((select array_agg(f.feature order by f.feature) from account.tenant_features f where f.tenant_id = t.id
    and f.enabled), '{}') as features
from account.tenants t join account.organisations o on o.id = t.organisation_id
where @organisation::uuid is null or t.organisation_id = @organisation
order by o.name, t.name, t.id`

// Workspaces lists the workspaces of one organisation, or all, by organisation and name.
func (a *Accounts) Workspaces(ctx context.Context, organisation *uuid.UUID) ([]admin.Workspace, error) {
	return listLong(ctx, a.db, "list tenants", pgx.RowToStructByName[admin.Workspace], workspacesSQL,
		pgx.NamedArgs{"organisation": organisation})
}

// SetModule changes a module of a workspace with the event, or returns admin.ErrNoWorkspace.
func (a *Accounts) SetModule(
	ctx context.Context, workspaceID uuid.UUID, module string, change admin.ModuleChange, event audit.Event,
) (admin.Module, error) {
	after := admin.Module{Name: module}
	err := a.change(ctx, "set module", &event, func(tx *transaction) {
		tx.row(`
insert into account.tenant_modules as m (tenant_id, module, enabled, provisioned)
values ($1, $2, coalesce($3, false), coalesce($4, false))
on conflict (tenant_id, module) do update set enabled = coalesce($3, m.enabled),
  provisioned = coalesce($4, m.provisioned)
returning enabled, provisioned`, workspaceID, module, change.Enabled, change.Provisioned).
			read(&after.Enabled, &after.Provisioned)
		tx.violation(foreignKeyViolation, "tenant_modules", admin.ErrNoWorkspace)
	})
	return after, err
}

// SetFeature switches a feature of a workspace with the event, or returns admin.ErrNoWorkspace.
func (a *Accounts) SetFeature(
	ctx context.Context, workspaceID uuid.UUID, feature string, on bool, event audit.Event,
) error {
	return a.change(ctx, "set feature", &event, func(tx *transaction) {
		tx.exec(`insert into account.tenant_features (tenant_id, feature, enabled) values ($1, $2, $3)
			on conflict (tenant_id, feature) do update set enabled = excluded.enabled`, workspaceID, feature, on)
		tx.violation(foreignKeyViolation, "tenant_features", admin.ErrNoWorkspace)
	})
}

const membershipsSQL = `
select t.id, t.name, o.name, coalesce(f.enabled, false), t.second_factor_required, m.permissions, ` + policyColumns + `
from account.memberships m
join account.users u on u.id = m.user_id and u.disabled_at is null
join account.tenants t on t.id = m.tenant_id
join account.organisations o on o.id = t.organisation_id
left join account.tenant_features f on f.tenant_id = t.id and f.feature = 'llm_integration'
left join account.connector_policies p on p.tenant_id = t.id
where m.user_id = $1 and ($2::uuid is null or m.tenant_id = $2)
order by o.name, t.name, t.id`

// Memberships lists the memberships of a user by organisation and workspace name.
func (a *Accounts) Memberships(ctx context.Context, user uuid.UUID) ([]workspace.Membership, error) {
	return list(ctx, a.db, "read memberships", scanMembership, membershipsSQL, user, nil)
}

// Membership reads a user's current membership of one workspace. It returns false if the user is not a member
// or the workspace does not exist.
func (a *Accounts) Membership(ctx context.Context, user, workspaceID uuid.UUID) (workspace.Membership, bool, error) {
	return one(ctx, a.db, "read memberships", scanMembership, membershipsSQL, user, workspaceID)
}

func scanMembership(row pgx.CollectableRow) (m workspace.Membership, err error) {
	w := &m.Workspace
	err = row.Scan(append([]any{&w.ID, &w.Name, &w.Organisation, &w.LLMIntegration, &w.SecondFactor, &m.Permissions},
		policyTargets(&w.Connectors)...)...)
	m.Permissions, w.Connectors = ordered(m.Permissions), foundPolicy(w.Connectors)
	return m, err
}

// Modules returns the state of the modules in each workspace of a user, by workspace and name. A module that was never
// enabled may be missing.
func (a *Accounts) Modules(
	ctx context.Context, user uuid.UUID,
) (map[uuid.UUID]map[string]workspace.ModuleState, error) {
	type module struct {
		TenantID uuid.UUID
		Module   string
		workspace.ModuleState
	}
	found, err := list(ctx, a.db, "read modules", pgx.RowToStructByName[module], `
		select d.tenant_id, d.module, d.enabled, d.provisioned
		from account.memberships m
		join account.tenant_modules d on d.tenant_id = m.tenant_id
		where m.user_id = $1`, user)
	out := map[uuid.UUID]map[string]workspace.ModuleState{}
	for _, m := range found {
		if out[m.TenantID] == nil {
			out[m.TenantID] = map[string]workspace.ModuleState{}
		}
		out[m.TenantID][m.Module] = m.ModuleState
	}
	return out, err
}

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
	narrowed, left := consent.Narrow(limit, approved, workspace.PlatformOf(platform), now)
	t.require(left, grant.ErrPolicy)
	return narrowed
}

// The effect of a policy on a connector's grant g that has not ended: consent.Narrow in SQL, for many grants
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

// ReplaceConnectorPolicy replaces the policy of a workspace and narrows the existing grants, with an event each, in one
// transaction, or returns admin.ErrNoWorkspace. Setting the same policy again changes nothing and writes no event. seen
// is the digest of the policy that the caller saw, or "" for an operator: if the policy changed since it was read,
// nothing changes and the error is consent.ErrPolicyChanged.
func (g *Grants) ReplaceConnectorPolicy(
	ctx context.Context, workspaceID uuid.UUID, seen string, after workspace.ConnectorPolicy, event audit.Event,
) (change consent.PolicyChange, err error) {
	err = g.change(ctx, "set connector policy", &event, func(tx *transaction) {
		tx.exec(`select from account.tenants where id = $1 for no key update`, workspaceID)
		change = consent.PolicyChange{Before: tx.policy(workspaceID), After: after}
		if change.Before.Equal(after) {
			tx.noEvent = true
			return
		}
		asSeen := change.Before.Digest() == seen || seen == "" && event.Authorization.Operator
		tx.require(asSeen, consent.ErrPolicyChanged)
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
  update account.grants g set permissions = chosen.kept, ends_at = chosen.sooner,
    narrowed_at = case when @reason::text = 'connector_policy' then chosen.at else g.narrowed_at end
  from chosen where g.tenant_id = @in and g.id = chosen.id
  returning g.id, g.tenant_id, g.user_id, g.client_id, g.permissions, g.ends_at,
    chosen.permissions as former, chosen.ends_at as formerly, g.state = 'pending' as unused
)
insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, detail, request_id)
select gen_random_uuid(), tenant_id, user_id, @actor, '` + audit.GrantNarrowed + `', 'grant:' || id,
  jsonb_build_object(
  'reason', @reason::text, 'client_id', client_id::text, 'permissions', to_jsonb(permissions), 'ends_at', ends_at,
  'former_permissions', to_jsonb(former), 'former_ends_at', formerly, 'unused', unused), @request
from g`

// enforce ends or narrows the grants that exceed the policy (P2). A policy that only raises limits affects none. A
// rehearsal counts by itself.
func (t *transaction) enforce(workspaceID uuid.UUID, change *consent.PolicyChange, actor string) {
	if !t.rehearses {
		e, args := &change.Effect, policyArgs(workspaceID, change.After)
		args["most"], args["next"] = countAtMost, countAtMost+1
		t.row(effectSQL, args).read(&e.End, &e.Lose, &e.Sooner, &e.More)
		if change.After.Includes(change.Before) && e.End+e.Lose+e.Sooner == 0 {
			return
		}
	}
	p := ending{
		workspaceID: workspaceID,
		policy:      &change.After,
		reason:      grant.ByPolicy,
		actor:       actor,
	}.begin(t, endAtOnce)
	change.EndedGrants = p.ended
}
