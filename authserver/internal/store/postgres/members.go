package postgres

import (
	"cmp"
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// AddMember inserts a membership with the event, or returns admin.ErrNoWorkspace, admin.ErrNoUser,
// membership.ErrUnproven or membership.ErrMember.
func (s *Store) AddMember(
	ctx context.Context, workspaceID, user uuid.UUID, permissions perm.Set, event audit.Event,
) error {
	return s.changeMembers(ctx, "add member", workspaceID, &event, func(tx pgx.Tx) error {
		if err := holdUser(ctx, tx, user, new(bool)); err != nil { // a deleted user joins no workspace
			return err
		}
		if proven, err := isProven(ctx, tx, user); err != nil || !proven {
			return cmp.Or(err, membership.ErrUnproven)
		}
		_, err := tx.Exec(ctx, `insert into account.memberships (tenant_id, user_id, permissions) values ($1, $2, $3)`,
			workspaceID, user, permissions.Strings())
		switch {
		case violates(err, uniqueViolation, "memberships"):
			return membership.ErrMember
		case violates(err, foreignKeyViolation, "memberships"): // the user's row is locked
			return admin.ErrNoWorkspace
		}
		return err
	})
}

// Members lists the members of a workspace by e-mail address, or returns admin.ErrNoWorkspace.
func (s *Store) Members(ctx context.Context, workspaceID uuid.UUID) ([]admin.Member, error) {
	exists, err := listLong(ctx, s, "find tenant", pgx.RowTo[uuid.UUID],
		`select id from account.tenants where id = $1`, workspaceID)
	if err == nil && len(exists) == 0 {
		err = admin.ErrNoWorkspace
	}
	if err != nil {
		return nil, err
	}
	return listLong(ctx, s, "list members", pgx.RowToStructByName[admin.Member], `
select u.id as user_id, u.email, u.name, m.permissions, m.created_at as since, u.disabled_at is not null as disabled
from account.memberships m join account.users u on u.id = m.user_id where m.tenant_id = $1 order by u.email`,
		workspaceID)
}

// lockMembers serializes the changes of a workspace's members and invitations, until the end of the transaction. It
// is the first lock of such a transaction: two members who remove each other would else wait for each other.
func lockMembers(ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID) error {
	_, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended('members ' || $1::text, 0))`,
		workspaceID.String())
	return err
}

// lockMember locks a membership and returns its permissions, or false if the user is not a member.
func lockMember(ctx context.Context, tx pgx.Tx, workspaceID, user uuid.UUID) (held perm.Set, found bool, err error) {
	var permissions []string
	err = tx.QueryRow(ctx, `select permissions from account.memberships where tenant_id = $1 and user_id = $2
		for update`, workspaceID, user).Scan(&permissions)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	return perm.FromStrings(permissions), err == nil, err
}

// setPermissions replaces the permissions of a locked member. It returns membership.ErrUnproven for an added permission
// of a user whose address was never proven (M6).
func setPermissions(ctx context.Context, tx pgx.Tx, workspaceID, user uuid.UUID, former, permissions perm.Set) error {
	if len(permissions.Without(former)) > 0 {
		if proven, err := isProven(ctx, tx, user); err != nil || !proven {
			return cmp.Or(err, membership.ErrUnproven)
		}
	}
	_, err := tx.Exec(ctx, `update account.memberships set permissions = $3 where tenant_id = $1 and user_id = $2`,
		workspaceID, user, permissions.Strings())
	return err
}

// endMembership deletes a locked membership and ends what depends on it: the user's grants, personal access tokens and
// open invitations in the workspace (M3). The part has the grants that it revoked, so that the caller can update Redis,
// and the number of tokens.
func endMembership(ctx context.Context, tx pgx.Tx, workspaceID, user uuid.UUID, actor string, most int) (part, error) {
	if _, err := tx.Exec(ctx, `delete from account.memberships where tenant_id = $1 and user_id = $2`,
		workspaceID, user); err != nil {
		return part{}, err
	}
	if _, err := tx.Exec(ctx, `update account.invitations set ended_at = now(), outcome = 'withdrawn'
		where tenant_id = $1 and invited_by = $2 and ended_at is null`, workspaceID, user); err != nil {
		return part{}, err
	}
	return ending{
		workspaceID: workspaceID,
		user:        &user,
		reason:      grant.MembershipOver,
		actor:       actor,
	}.begin(ctx, tx, most)
}

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
	scan := func(row pgx.CollectableRow) (m membership.ListedMember, err error) {
		var held []string
		err = row.Scan(listedMemberTargets(&m, &held)...)
		m.Permissions = perm.FromStrings(held)
		return m, err
	}
	return listLong(ctx, s, "list members", scan, `select `+listedMemberFields+`
		from account.memberships m join account.users u on u.id = m.user_id
		where m.tenant_id = @tenant order by lower(u.name), u.email, u.id`, pgx.NamedArgs{"tenant": workspaceID})
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
	scan := func(row pgx.CollectableRow) (m membership.Member, err error) {
		var held []string
		err = row.Scan(append(listedMemberTargets(&m.ListedMember, &held), &m.Since, &m.LastSeen, &m.Connections,
			&m.Tokens, &m.Proven)...)
		m.Permissions = perm.FromStrings(held)
		return m, err
	}
	return listLong(ctx, s, "read members", scan, workspaceMembersSQL,
		pgx.NamedArgs{"tenant": workspaceID, "users": users})
}

// changeMembers is change, after it has locked the members of the workspace.
func (s *Store) changeMembers(
	ctx context.Context, op string, workspaceID uuid.UUID, event *audit.Event, do func(pgx.Tx) error,
) error {
	_, err := s.recorded(ctx, op, event, func(tx pgx.Tx) error {
		if err := lockMembers(ctx, tx, workspaceID); err != nil {
			return err
		}
		if err := stillAllowed(ctx, tx, event.Authorization); err != nil {
			return err
		}
		return do(tx)
	})
	return err
}

// ChangePermissions replaces a member's permissions with the event, and returns the former ones. It returns
// membership.ErrNoMember, ErrUnproven and, unless an operator changes them, ErrLastHolder or ErrChanged.
func (s *Store) ChangePermissions(
	ctx context.Context, c membership.Change, event audit.Event,
) (former perm.Set, err error) {
	err = s.changeMembers(ctx, "change permissions", c.WorkspaceID, &event, func(tx pgx.Tx) error {
		held, found, err := lockMember(ctx, tx, c.WorkspaceID, c.UserID)
		former = held
		switch operator := event.Authorization.Operator; {
		case err != nil:
			return err
		case !found:
			return membership.ErrNoMember
		case operator:
		case c.Seen != nil && c.Seen.Scope() != former.Scope():
			return membership.ErrChanged
		case !event.Authorization.Permissions.HasAll(c.Permissions.Without(former)):
			return membership.ErrChanged // the caller's right was checked against other permissions of the member
		case c.Permissions.Scope() == former.Scope():
			return errNoEvent
		default:
			err = checkOthersHold(ctx, tx, c.WorkspaceID, c.UserID, former.Without(c.Permissions))
		}
		if err != nil {
			return err
		}
		if err := setPermissions(ctx, tx, c.WorkspaceID, c.UserID, former, c.Permissions); err != nil {
			return err
		}
		event.Detail["former"] = former.Strings()
		return s.mailMember(ctx, tx, mail.PermissionsChanged, c.WorkspaceID, c.UserID, c.Permissions)
	})
	return former, err
}

// EndMembership ends a membership and what depends on it, with the event. It returns membership.ErrNoMember and, unless
// an operator ends it, ErrLastHolder. It returns what it revoked, so that the caller can update Redis; EndNext revokes
// the others.
func (s *Store) EndMembership(
	ctx context.Context, workspaceID, user uuid.UUID, event audit.Event,
) (removal membership.Removal, err error) {
	err = s.changeMembers(ctx, "end membership", workspaceID, &event, func(tx pgx.Tx) error {
		held, found, err := lockMember(ctx, tx, workspaceID, user)
		if err == nil && !found {
			err = membership.ErrNoMember
		}
		if err == nil && !event.Authorization.Operator {
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
		removal = p.credentials()
		if event.Action == audit.MemberRemoved { // a member who leaves knows
			return s.mailMember(ctx, tx, mail.Removed, workspaceID, user, nil)
		}
		return nil
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

// AppointManagers gives account:read:members and account:write:members to the enabled members of a workspace who have
// account:api:access and a proven address (M6), unless an enabled member has account:write:members already. Each change
// has its event, which event returns. It returns the changed members, with their new permissions.
func (s *Store) AppointManagers(
	ctx context.Context, workspaceID uuid.UUID, event func(user uuid.UUID, former, now perm.Set) audit.Event,
) (appointed []admin.Member, err error) {
	err = s.atomically(ctx, "appoint managers", func(tx pgx.Tx) error {
		appointed = nil
		if err := lockMembers(ctx, tx, workspaceID); err != nil {
			return err
		}
		managed, err := found(tx.QueryRow(ctx, `select true from account.memberships m
			join account.users u on u.id = m.user_id and u.disabled_at is null
			where m.tenant_id = $1 and $2 = any(m.permissions) limit 1`, workspaceID, string(perm.AccountWriteMembers)))
		if err != nil || managed {
			return err
		}
		appointed, err = collect(ctx, tx, pgx.RowToStructByNameLax[admin.Member], `
select u.id as user_id, u.email, u.name, m.permissions, m.created_at as since
from account.memberships m join account.users u on u.id = m.user_id and u.disabled_at is null and `+proven+`
where m.tenant_id = $1 and $2 = any(m.permissions) order by u.email for update of m`,
			workspaceID, string(perm.AccountAPIAccess))
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
