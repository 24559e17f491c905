package postgres

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/admin"
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
