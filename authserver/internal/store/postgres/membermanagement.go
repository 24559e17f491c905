package postgres

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/mail"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/shared/perm"
)

var (
	_ membership.Members     = (*Store)(nil)
	_ membership.Invitations = (*Store)(nil)
	_ membership.Answers     = (*Store)(nil)
)

// listedMemberFields are the columns of a membership.ListedMember.
const listedMemberFields = `u.id, u.name, u.email, m.permissions, u.disabled_at is not null,
  exists (select from account.passkeys k where k.user_id = u.id and k.copied_at is null)
    or exists (select from account.authenticators a where a.user_id = u.id)`

// workspaceMembersSQL selects some members of a workspace.
const workspaceMembersSQL = `
with connections as materialized (
  select g.user_id, count(*) as number from account.grants g
  where g.tenant_id = @tenant and g.user_id = any(@users)
    and g.state = 'active' and g.ends_at > now() and ` + notOverSQL + ` group by g.user_id)
select ` + listedMemberFields + `, m.created_at,
  (select max(s.last_seen_at) from account.sign_ins s where s.user_id = u.id),
  coalesce(c.number, 0),
  (select count(*) from account.personal_access_tokens p
    where p.user_id = u.id and p.tenant_id = m.tenant_id and p.revoked_at is null and p.expires_at > now()
      and ` + tokenNotEndingSQL + `),
  ` + proven + `
from account.memberships m join account.users u on u.id = m.user_id
  left join connections c on c.user_id = m.user_id
where m.tenant_id = @tenant and m.user_id = any(@users)
order by array_position(@users::uuid[], m.user_id)`

// ListedMembers reads all members of a workspace, by name.
func (s *Store) ListedMembers(ctx context.Context, workspaceID uuid.UUID) ([]membership.ListedMember, error) {
	return listed(ctx, s, "list members", `select `+listedMemberFields+`
		from account.memberships m join account.users u on u.id = m.user_id
		where m.tenant_id = @tenant order by lower(u.name), u.email, u.id`, pgx.NamedArgs{"tenant": workspaceID},
		func(row pgx.CollectableRow) (m membership.ListedMember, err error) {
			var held []string
			err = row.Scan(listedMemberTargets(&m, &held)...)
			m.Permissions = perm.FromStrings(held)
			return m, err
		})
}

func listedMemberTargets(m *membership.ListedMember, held *[]string) []any {
	return []any{&m.UserID, &m.Name, &m.Email, held, &m.Disabled, &m.SecondFactor}
}

// WorkspaceMember reads a member of a workspace, or returns membership.ErrNoMember.
func (s *Store) WorkspaceMember(ctx context.Context, workspaceID, user uuid.UUID) (membership.Member, error) {
	members, err := s.WorkspaceMembers(ctx, workspaceID, []uuid.UUID{user})
	if err == nil && len(members) == 0 {
		err = membership.ErrNoMember
	}
	if err != nil {
		return membership.Member{}, err
	}
	return members[0], nil
}

// WorkspaceMembers reads the members of a workspace that are among users, in the order of users.
func (s *Store) WorkspaceMembers(
	ctx context.Context, workspaceID uuid.UUID, users []uuid.UUID,
) ([]membership.Member, error) {
	return listed(ctx, s, "read members", workspaceMembersSQL, pgx.NamedArgs{"tenant": workspaceID, "users": users},
		func(row pgx.CollectableRow) (m membership.Member, err error) {
			var held []string
			err = row.Scan(append(listedMemberTargets(&m.ListedMember, &held), &m.Since, &m.LastSeen, &m.Connections,
				&m.Tokens, &m.Proven)...)
			m.Permissions = perm.FromStrings(held)
			return m, err
		})
}

// changeMembers runs do like atomically, after it has locked the members of the workspace and checked the event's
// authorization.
func (s *Store) changeMembers(
	ctx context.Context, op string, workspaceID uuid.UUID, event audit.Event, do func(pgx.Tx) error,
) error {
	return s.atomically(ctx, op, func(tx pgx.Tx) error {
		if err := lockMembers(ctx, tx, workspaceID); err != nil {
			return err
		}
		if err := stillAllowed(ctx, tx, event.Authorization); err != nil {
			return err
		}
		return do(tx)
	})
}

// ChangePermissions replaces a member's permissions with the event. It returns membership.ErrNoMember, ErrLastHolder,
// ErrUnproven or ErrChanged.
func (s *Store) ChangePermissions(ctx context.Context, c membership.Change, event audit.Event) error {
	return s.changeMembers(ctx, "change permissions", c.WorkspaceID, event, func(tx pgx.Tx) error {
		former, found, err := lockMember(ctx, tx, c.WorkspaceID, c.UserID)
		switch {
		case err != nil:
			return err
		case !found:
			return membership.ErrNoMember
		case c.Seen != nil && c.Seen.Scope() != former.Scope():
			return membership.ErrChanged
		case !event.Authorization.Permissions.HasAll(c.Permissions.Without(former)):
			return membership.ErrChanged // the caller's right was checked against other permissions of the member
		case c.Permissions.Scope() == former.Scope():
			return nil
		}
		if err := checkOthersHold(ctx, tx, c.WorkspaceID, c.UserID, former.Without(c.Permissions)); err != nil {
			return err
		}
		if err := setPermissions(ctx, tx, c.WorkspaceID, c.UserID, former, c.Permissions); err != nil {
			return err
		}
		event.Detail["former"] = former.Strings()
		err = s.mailMember(ctx, tx, mail.PermissionsChanged, c.WorkspaceID, c.UserID, c.Permissions)
		if err != nil {
			return err
		}
		return s.record(ctx, tx, event)
	})
}

// EndMembership ends a membership and what depends on it, with the event. It returns membership.ErrNoMember or
// ErrLastHolder.
func (s *Store) EndMembership(
	ctx context.Context, workspaceID, user uuid.UUID, event audit.Event,
) (membership.Removal, error) {
	var removal membership.Removal
	err := s.changeMembers(ctx, "end membership", workspaceID, event, func(tx pgx.Tx) error {
		removal = membership.Removal{}
		held, found, err := lockMember(ctx, tx, workspaceID, user)
		if err == nil && !found {
			err = membership.ErrNoMember
		}
		if err == nil {
			err = checkOthersHold(ctx, tx, workspaceID, user, held)
		}
		if err == nil { // a stolen password must not end a membership that a second factor protects
			err = mayChangeFactors(ctx, tx, event.Authorization)
		}
		if err != nil {
			return err
		}
		p, err := endMembership(ctx, tx, workspaceID, user, event.Actor, endAtOnce)
		if err != nil {
			return err
		}
		removal.Tokens, removal.More = p.tokens, p.more
		for _, g := range p.ended {
			removal.Grants = append(removal.Grants, membership.EndedGrant{ID: g.ID, Ends: g.Ends})
		}
		if event.Action == audit.MemberRemoved { // a member who leaves knows
			if err := s.mailMember(ctx, tx, mail.Removed, workspaceID, user, nil); err != nil {
				return err
			}
		}
		return s.record(ctx, tx, event)
	})
	return removal, err
}

// onlyHolder is true if an enabled user $1 is the only enabled member of the workspace of membership m with one of the
// permissions $2.
const onlyHolder = `exists (select from account.users u where u.id = $1 and u.disabled_at is null) and exists (
  select from unnest($2::text[]) p where p = any(m.permissions) and not exists (
    select from account.memberships o join account.users u on u.id = o.user_id and u.disabled_at is null
    where o.tenant_id = m.tenant_id and o.user_id <> $1 and p = any(o.permissions)))`

// checkOthersHold returns membership.ErrLastHolder if the user, a member, is the last with one of the lost permissions
// that are of account (M2). The workspace's members are locked.
func checkOthersHold(ctx context.Context, tx pgx.Tx, workspaceID, user uuid.UUID, lost perm.Set) error {
	last, err := found(tx.QueryRow(ctx, `select true from account.memberships m
		where m.tenant_id = $3 and m.user_id = $1 and `+onlyHolder, user, lost.OfAccount().Strings(), workspaceID))
	if err == nil && last {
		err = membership.ErrLastHolder
	}
	return err
}
