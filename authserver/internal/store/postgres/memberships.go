package postgres

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/shared/perm"
)

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
func (s *Store) Memberships(ctx context.Context, user uuid.UUID) ([]workspace.Membership, error) {
	return s.memberships(ctx, user, nil)
}

// Membership reads a user's current membership of one workspace. It returns false if the user is not a member
// or the workspace does not exist.
func (s *Store) Membership(ctx context.Context, user, workspaceID uuid.UUID) (workspace.Membership, bool, error) {
	found, err := s.memberships(ctx, user, &workspaceID)
	if err != nil || len(found) == 0 {
		return workspace.Membership{}, false, err
	}
	return found[0], true, nil
}

func (s *Store) memberships(
	ctx context.Context,
	user uuid.UUID,
	workspaceID *uuid.UUID,
) ([]workspace.Membership, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	rows, err := s.pool.Query(ctx, membershipsSQL, user, workspaceID)
	if err != nil {
		return nil, unavailable("read memberships", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (workspace.Membership, error) {
		var m workspace.Membership
		var held []string
		var limit policyRow
		err := row.Scan(
			append(
				[]any{
					&m.Workspace.ID,
					&m.Workspace.Name,
					&m.Workspace.Organisation,
					&m.Workspace.LLMIntegration,
					&m.Workspace.SecondFactor,
					&held,
				},
				limit.targets()...)...)
		m.Permissions, m.Workspace.Connectors = perm.FromStrings(held), limit.policy()
		return m, err
	})
	return found, unavailable("read memberships", err)
}
