package postgres

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
)

// AddMember inserts a membership with the event, or returns admin.ErrNoWorkspace, admin.ErrNoUser,
// membership.ErrUnproven or membership.ErrMember.
func (a *Accounts) AddMember(
	ctx context.Context, workspaceID, user uuid.UUID, permissions perm.Set, event audit.Event,
) error {
	return a.changeMembers(ctx, "add member", workspaceID, &event, func(tx *transaction) {
		tx.holdUser(user) // a deleted user joins no workspace
		tx.require(tx.isProven(user), membership.ErrUnproven)
		tx.exec(`insert into account.memberships (tenant_id, user_id, permissions) values ($1, $2, $3)`,
			workspaceID, user, permissions.Strings())
		tx.violation(uniqueViolation, "memberships", membership.ErrMember)
		tx.violation(foreignKeyViolation, "memberships", admin.ErrNoWorkspace) // the user's row is locked
	})
}

// Members lists the members of a workspace by e-mail address, or returns admin.ErrNoWorkspace.
func (a *Accounts) Members(ctx context.Context, workspaceID uuid.UUID) ([]admin.Member, error) {
	_, err := need(ctx, a.db, "find tenant", admin.ErrNoWorkspace, pgx.RowTo[uuid.UUID],
		`select id from account.tenants where id = $1`, workspaceID)
	if err != nil {
		return nil, err
	}
	return listLong(ctx, a.db, "list members", pgx.RowToStructByName[admin.Member], `
select u.id as user_id, u.email, u.name, m.permissions, m.created_at as since, u.disabled_at is not null as disabled
from account.memberships m join account.users u on u.id = m.user_id where m.tenant_id = $1 order by u.email`,
		workspaceID)
}

// lockMembers serializes the changes of a workspace's members and invitations, until the end of the transaction. It
// is the first lock of such a transaction: two members who remove each other would else wait for each other.
func (t *transaction) lockMembers(workspaceID uuid.UUID) { t.lock("members " + workspaceID.String()) }

// lockMember locks a membership and returns its permissions, or false if the user is not a member.
func (t *transaction) lockMember(workspaceID, user uuid.UUID) (held perm.Set, found bool) {
	found = t.row(`select permissions from account.memberships where tenant_id = $1 and user_id = $2
		for update`, workspaceID, user).find(&held)
	return ordered(held), found
}

// setPermissions replaces the permissions of a locked member. It fails with membership.ErrUnproven for an added
// permission of a user whose address was never proven (M6).
func (t *transaction) setPermissions(workspaceID, user uuid.UUID, former, permissions perm.Set) {
	if len(permissions.Without(former)) > 0 {
		t.require(t.isProven(user), membership.ErrUnproven)
	}
	t.exec(`update account.memberships set permissions = $3 where tenant_id = $1 and user_id = $2`, workspaceID, user,
		permissions.Strings())
}

// endMembership deletes a locked membership and ends what depends on it: the user's grants, personal access tokens and
// open invitations in the workspace (M3). The part has the grants that it revoked, so that the caller can update Redis,
// and the number of tokens.
func (t *transaction) endMembership(workspaceID, user uuid.UUID, actor string, most int) part {
	t.exec(`delete from account.memberships where tenant_id = $1 and user_id = $2`, workspaceID, user)
	t.exec(`update account.invitations set ended_at = now(), outcome = 'withdrawn'
		where tenant_id = $1 and invited_by = $2 and ended_at is null`, workspaceID, user)
	return ending{
		workspaceID: workspaceID,
		user:        &user,
		reason:      grant.MembershipOver,
		actor:       actor,
	}.begin(t, most)
}

// listedMemberFields are the columns of a membership.ListedMember.
const listedMemberFields = `u.id as user_id, u.name, u.email, m.permissions, m.created_at as since,
  u.disabled_at is not null as disabled,
  exists (select from account.passkeys k where k.user_id = u.id and k.copied_at is null)
    or exists (select from account.authenticators a where a.user_id = u.id) as second_factor`

// workspaceMembersSQL selects some members of a workspace. The limit has Postgres look up each of them by its key: it
// cannot know that the workspace has more than a few, and would read all of its members instead.
const workspaceMembersSQL = `
with connections as materialized (
  select g.user_id, count(*) as number from account.grants g
  where g.tenant_id = @tenant and g.user_id = any(@users)
    and g.state = 'active' and g.ends_at > now() and ` + notOverSQL + ` group by g.user_id)
select ` + listedMemberFields + `,
  (select max(s.last_seen_at) from account.sign_ins s where s.user_id = u.id) as last_seen,
  coalesce(c.number, 0) as connections,
  (select count(*) from account.personal_access_tokens p
    where p.user_id = u.id and p.tenant_id = m.tenant_id and p.revoked_at is null and p.expires_at > now()
      and ` + tokenNotEndingSQL + `) as tokens,
  ` + proven + ` as proven
from unnest(@users::uuid[]) with ordinality asked (user_id, place)
  cross join lateral (select n.* from account.memberships n
    where n.tenant_id = @tenant and n.user_id = asked.user_id limit 1) m
  join account.users u on u.id = m.user_id
  left join connections c on c.user_id = m.user_id
order by asked.place`

// ListedMembers reads the members of a workspace that the page selects, the latest first.
func (a *Accounts) ListedMembers(
	ctx context.Context, workspaceID uuid.UUID, page membership.MemberPage,
) ([]membership.ListedMember, error) {
	chosen := `select l.* from account.memberships l where l.tenant_id = @tenant`
	if !page.Before.IsZero() {
		chosen += ` and (l.created_at, l.user_id) < (@before, @user)`
	}
	if page.Email != "" {
		chosen += ` and l.user_id in (select s.id from account.users s where s.email = any(@addresses))`
	}
	scan := withPermissions(func(m *membership.ListedMember) *perm.Set { return &m.Permissions })
	return listLong(ctx, a.db, "list members", scan, `select `+listedMemberFields+`
		from (`+chosen+` order by l.created_at desc, l.user_id desc limit @limit) m
		join account.users u on u.id = m.user_id order by m.created_at desc, m.user_id desc`,
		pgx.NamedArgs{"tenant": workspaceID, "before": page.Before, "user": page.UserID,
			"addresses": spelling.Spellings(page.Email), "limit": page.Limit})
}

var scanMember = withPermissions(func(m *membership.Member) *perm.Set { return &m.Permissions })

// WorkspaceMember reads a member of a workspace, or returns membership.ErrNoMember.
func (a *Accounts) WorkspaceMember(ctx context.Context, workspaceID, user uuid.UUID) (membership.Member, error) {
	return need(ctx, a.db, "read members", membership.ErrNoMember, scanMember, workspaceMembersSQL,
		pgx.NamedArgs{"tenant": workspaceID, "users": []uuid.UUID{user}})
}

// WorkspaceMembers reads the members of a workspace that are among users, in the order of users.
func (a *Accounts) WorkspaceMembers(
	ctx context.Context, workspaceID uuid.UUID, users []uuid.UUID,
) ([]membership.Member, error) {
	return listLong(ctx, a.db, "read members", scanMember, workspaceMembersSQL,
		pgx.NamedArgs{"tenant": workspaceID, "users": users})
}

// changeMembers is change, after it has locked the members of the workspace.
func (d *db) changeMembers(
	ctx context.Context, op string, workspaceID uuid.UUID, event *audit.Event, do func(*transaction),
) error {
	_, err := d.recorded(ctx, op, event, func(tx *transaction) {
		tx.lockMembers(workspaceID)
		if tx.stillAllowed(event.Authorization); tx.err == nil {
			do(tx)
		}
	})
	return err
}

// ChangePermissions replaces a member's permissions with the event, and returns the former ones. It returns
// membership.ErrNoMember, ErrUnproven and, unless an operator changes them, ErrLastHolder or ErrChanged.
func (a *Accounts) ChangePermissions(
	ctx context.Context, c membership.Change, event audit.Event,
) (former perm.Set, err error) {
	err = a.changeMembers(ctx, "change permissions", c.WorkspaceID, &event, func(tx *transaction) {
		held, found := tx.lockMember(c.WorkspaceID, c.UserID)
		former = held
		tx.require(found, membership.ErrNoMember)
		if !event.Authorization.Operator {
			tx.require(c.Seen == nil || c.Seen.Scope() == former.Scope(), membership.ErrChanged)
			// The caller's right was checked against the permissions that the member had.
			added := c.Permissions.Without(former)
			tx.require(event.Authorization.Permissions.HasAll(added), membership.ErrChanged)
			if c.Permissions.Scope() == former.Scope() {
				tx.noEvent = true
				return
			}
			tx.checkOthersHold(c.WorkspaceID, c.UserID, former.Without(c.Permissions))
		}
		if tx.err != nil {
			return
		}
		tx.setPermissions(c.WorkspaceID, c.UserID, former, c.Permissions)
		if c.Answers != nil {
			tx.answerRequest(c.WorkspaceID, *c.Answers)
		}
		tx.exec(`update account.access_requests set answered_at = now()
			where tenant_id = $1 and user_id = $2 and permissions && $3`,
			c.WorkspaceID, c.UserID, c.Permissions.Without(former).Strings())
		event.Detail["former"] = former.Strings()
		tx.mailMember(mail.PermissionsChanged, c.WorkspaceID, c.UserID, c.Permissions)
	})
	return former, err
}

// EndMembership ends a membership and what depends on it, with the event. It returns membership.ErrNoMember and, unless
// an operator ends it, ErrLastHolder. It returns what it revoked, so that the caller can update Redis; EndNext revokes
// the others.
func (a *Accounts) EndMembership(
	ctx context.Context, workspaceID, user uuid.UUID, event audit.Event,
) (removal membership.Removal, err error) {
	err = a.changeMembers(ctx, "end membership", workspaceID, &event, func(tx *transaction) {
		held, found := tx.lockMember(workspaceID, user)
		tx.require(found, membership.ErrNoMember)
		if !event.Authorization.Operator {
			tx.checkOthersHold(workspaceID, user, held)
		}
		// A stolen password must not end a membership that a second factor protects.
		tx.mayChangeFactors(event.Authorization)
		removal = tx.endMembership(workspaceID, user, event.Actor, endAtOnce).credentials()
		if event.Action == audit.MemberRemoved { // a member who leaves knows
			tx.mailMember(mail.Removed, workspaceID, user, nil)
		}
	})
	return removal, err
}

// onlyHolder is true if an enabled user $1 is the only enabled member of the workspace of membership m with one of the
// permissions $2.
const onlyHolder = `exists (select from account.users u where u.id = $1 and u.disabled_at is null) and exists (
  select from unnest($2::text[]) p where p = any(m.permissions) and not exists (
    select from account.memberships o join account.users u on u.id = o.user_id and u.disabled_at is null
    where o.tenant_id = m.tenant_id and o.user_id <> $1 and p = any(o.permissions)))`

// checkOthersHold fails with membership.ErrLastHolder if the user, a member, is the last with one of the lost
// permissions that are of account (M2). The workspace's members are locked.
func (t *transaction) checkOthersHold(workspaceID, user uuid.UUID, lost perm.Set) {
	last := t.has(`select true from account.memberships m where m.tenant_id = $3 and m.user_id = $1 and `+onlyHolder,
		user, lost.OfAccount().Strings(), workspaceID)
	t.require(!last, membership.ErrLastHolder)
}

// AppointManagers gives account:read:members and account:write:members to the enabled members of a workspace who have
// account:api:access and a proven address (M6), unless an enabled member has account:write:members already. Each change
// has its event, which event returns. It returns the changed members, with their new permissions.
func (a *Accounts) AppointManagers(
	ctx context.Context, workspaceID uuid.UUID, event func(user uuid.UUID, former, now perm.Set) audit.Event,
) (appointed []admin.Member, err error) {
	err = a.atomically(ctx, "appoint managers", func(tx *transaction) {
		appointed = nil
		tx.lockMembers(workspaceID)
		if tx.has(`select true from account.memberships m
			join account.users u on u.id = m.user_id and u.disabled_at is null
			where m.tenant_id = $1 and $2 = any(m.permissions) limit 1`, workspaceID,
			string(perm.AccountWriteMembers)) {
			return
		}
		appointed = rowsOf(tx, pgx.RowToStructByNameLax[admin.Member], `
select u.id as user_id, u.email, u.name, m.permissions, m.created_at as since
from account.memberships m join account.users u on u.id = m.user_id and u.disabled_at is null and `+proven+`
where m.tenant_id = $1 and $2 = any(m.permissions) order by u.email for update of m`,
			workspaceID, string(perm.AccountAPIAccess))
		for i, m := range appointed {
			former := perm.FromStrings(m.Permissions)
			now := perm.NewSet(append(former, perm.AccountReadMembers, perm.AccountWriteMembers)...)
			tx.setPermissions(workspaceID, m.UserID, former, now)
			tx.mailMember(mail.PermissionsChanged, workspaceID, m.UserID, now)
			tx.record(event(m.UserID, former, now))
			appointed[i].Permissions = now.Strings()
		}
	})
	return appointed, err
}
