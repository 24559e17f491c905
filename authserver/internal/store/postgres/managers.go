package postgres

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/mail"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/shared/perm"
)

// AppointManagers gives account:read:members and account:write:members to the enabled members of a workspace who have
// account:api:access and a proven address (M6), unless an enabled member has account:write:members already. Each change
// has its event, which event returns. It returns the changed members, with their new permissions.
func (s *Store) AppointManagers(
	ctx context.Context, workspaceID uuid.UUID, event func(user uuid.UUID, former, now perm.Set) audit.Event,
) (appointed []admin.Member, err error) {
	err = s.administer(ctx, "appoint managers", func(tx pgx.Tx) error {
		appointed = nil
		if err := lockMembers(ctx, tx, workspaceID); err != nil {
			return err
		}
		managed, err := found(tx.QueryRow(ctx, `select true from account.memberships m
			join account.users u on u.id = m.user_id and u.disabled_at is null
			where m.tenant_id = $1 and $2 = any(m.permissions) limit 1`,
			workspaceID, string(perm.AccountWriteMembers)))
		if err != nil || managed {
			return err
		}
		rows, err := tx.Query(ctx, `
select u.id, u.email, u.name, m.permissions, m.created_at
from account.memberships m join account.users u on u.id = m.user_id and u.disabled_at is null and `+proven+`
where m.tenant_id = $1 and $2 = any(m.permissions) order by u.email for update of m`,
			workspaceID, string(perm.AccountAPIAccess))
		if err != nil {
			return err
		}
		appointed, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (m admin.Member, err error) {
			return m, row.Scan(&m.UserID, &m.Email, &m.Name, &m.Permissions, &m.Since)
		})
		if err != nil {
			return err
		}
		for i, m := range appointed {
			former := perm.FromStrings(m.Permissions)
			now := perm.NewSet(append(former, perm.AccountReadMembers, perm.AccountWriteMembers)...)
			if err := setPermissions(ctx, tx, workspaceID, m.UserID, former, now); err != nil {
				return err
			}
			if err := s.mailMember(ctx, tx, mail.PermissionsChanged, workspaceID, m.UserID, now); err != nil {
				return err
			}
			if err := s.record(ctx, tx, event(m.UserID, former, now)); err != nil {
				return err
			}
			appointed[i].Permissions = now.Strings()
		}
		return nil
	})
	return appointed, err
}
