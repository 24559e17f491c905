package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
)

// deletedName replaces the name of a deleted user.
const deletedName = "Deleted user"

// DeletionSummary returns what would end if the account was deleted.
func (a *Accounts) DeletionSummary(ctx context.Context, user uuid.UUID) (summary useraccount.Summary, err error) {
	err = a.atomically(ctx, "read what ends with a user", func(tx *transaction) { summary = tx.deletionSummary(user) })
	return summary, err
}

func (t *transaction) deletionSummary(user uuid.UUID) (sum useraccount.Summary) {
	sum.Workspaces = rowsOf(t, pgx.RowToStructByName[useraccount.Workspace], `
select t.id, t.name, `+onlyHolder+` as last_holder
from account.memberships m join account.tenants t on t.id = m.tenant_id
where m.user_id = $1 order by t.name, t.id`, user, perm.OfAccount().Strings())
	t.row(`
select
  (select count(*) from account.grants g where user_id = $2 and state = 'active' and ends_at > now()
    and `+notOverSQL+`),
  (select count(*) from account.personal_access_tokens p
    where user_id = $2 and revoked_at is null and expires_at > now() and `+tokenNotEndingSQL+`),
  (select count(*) from account.sign_ins s where s.user_id = $2 and `+signInCounts+`),
  (select count(*) from account.passkeys where user_id = $2)
    + (select count(*) from account.identities where user_id = $2)
    + (select count(*) from account.authenticators where user_id = $2),
  (select count(*) from account.invitations where invited_by = $2 and ended_at is null and expires_at > now()),
  (select count(*) from account.oauth_clients where created_by = $2 and deleted_at is null)`,
		session.IdleTimeout, user).
		read(&sum.Connections, &sum.Tokens, &sum.SignIns, &sum.SignInMethods, &sum.Invitations, &sum.Applications)
	return sum
}

// errJoined reports that a user became a member of another workspace before the user's row was locked. Nothing was
// written.
var errJoined = errors.New("the user joined another workspace meanwhile")

// DeleteUser deletes an account and records the event. It returns membership.ErrLastHolder or audit.ErrNotAuthorized.
// An operator may delete the last holder of a permission in a workspace, and gets admin.ErrNoUser.
func (a *Accounts) DeleteUser(
	ctx context.Context, user uuid.UUID, event audit.Event,
) (ended useraccount.Ended, err error) {
	for range deadlockTries {
		err = a.atomically(ctx, "delete user", func(tx *transaction) { ended = tx.deleteUser(user, event) })
		if !errors.Is(err, errJoined) {
			break
		}
	}
	return ended, err
}

// deleteUser locks the members of the user's workspaces, in the order of their ids, and then the user, as every change
// of members does. A concurrent transaction that holds or needs one of these locks commits either before the deletion,
// which then includes its changes, or after it, and is then refused.
func (t *transaction) deleteUser(user uuid.UUID, event audit.Event) (ended useraccount.Ended) {
	t.sequentially()
	locked := t.workspacesOf(user)
	for _, workspaceID := range locked {
		t.lockMembers(workspaceID)
	}
	operator := event.Authorization != nil && event.Authorization.Operator
	unknown := error(audit.ErrNotAuthorized)
	if operator {
		unknown = admin.ErrNoUser
	}
	t.require(t.lockUndeleted(user), unknown)
	t.stillAllowed(event.Authorization)
	t.mayChangeFactors(event.Authorization)
	current := t.workspacesOf(user)
	for _, workspaceID := range current {
		t.require(slices.Contains(locked, workspaceID), errJoined)
	}
	ended.Summary = t.deletionSummary(user)
	t.require(operator || len(ended.Unmanaged()) == 0, membership.ErrLastHolder)
	if t.err != nil {
		return ended
	}
	if t.sendsMail() { // even if the user is disabled
		m := mail.Message{Kind: mail.AccountDeleted}
		t.row(`select email, name, now() from account.users where id = $1`, user).read(&m.Address, &m.Name, &m.Data.At)
		t.queue(m)
	}
	t.endAccess(user, current, event, &ended)
	t.eraseUser(user, event)
	event.Detail = map[string]any{"tenants": len(current), "grants": len(ended.Grants), "tokens": ended.Tokens}
	if ended.More {
		event.Detail["more"] = true
	}
	t.record(event)
	return ended
}

// workspacesOf returns the workspaces of a user in the order in which transactions lock them.
func (t *transaction) workspacesOf(user uuid.UUID) []uuid.UUID {
	return rowsOf(t, pgx.RowTo[uuid.UUID],
		`select tenant_id from account.memberships where user_id = $1 order by tenant_id`, user)
}

// endAccess ends memberships, grants, tokens and sent invitations, and records an event in each workspace.
func (t *transaction) endAccess(user uuid.UUID, workspaces []uuid.UUID, event audit.Event, ended *useraccount.Ended) {
	left := event
	left.Action = audit.MemberLeft
	if event.Authorization.Operator {
		left.Action = audit.MemberRemoved
	}
	left.Detail = map[string]any{"account_deleted": true}
	for _, workspaceID := range workspaces {
		t.lockMember(workspaceID, user)
		p := t.endMembership(workspaceID, user, event.Actor, max(0, endAtOnce-len(ended.Grants)))
		ended.Grants, ended.More = append(ended.Grants, p.credentials().Grants...), ended.More || p.more
		left.WorkspaceID = &workspaceID
		t.record(left)
	}
	// Grants, tokens and invitations without a membership exist only if another program ended the membership alone.
	others := t.endCredentials(user, nil, grant.MembershipOver, event.Actor)
	ended.Grants, ended.More = append(ended.Grants, others.Grants...), ended.More || others.More
	t.withdrawInvitations(user)
}

// eraseUser deletes the sign-in methods, the name and the address of the user, and declines invitations to the address
// if it was proven to be the user's.
func (t *transaction) eraseUser(user uuid.UUID, event audit.Event) {
	var email string
	t.row(`select email from account.users where id = $1`, user).read(&email)
	t.exec(`
with gone as (
  delete from account.invitations where email = any($4)
    and exists (select from account.users where id = $1 and email_proven_at is not null)
  returning id, tenant_id, ended_at
)
insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, request_id)
select gen_random_uuid(), tenant_id, $1, $2, '`+audit.InvitationDeclined+`', 'invitation:' || id, $3
from gone where ended_at is null`, user, event.Actor, event.RequestID, spelling.Spellings(email))
	for _, table := range []string{
		"sign_ins", "passkeys", "identities", "authenticators", "password_resets", "email_changes", "unwanted_mails",
		"access_requests", "idempotency_keys",
	} {
		t.exec(`delete from account.`+table+` where user_id = $1`, user)
	}
	t.exec(`update account.users set disabled_at = now() where id = $1 and disabled_at is null`, user)
	t.exec(`update account.users set email = id || '@deleted.invalid', name = $2, password_hash = null,
		deleted_at = now() where id = $1`, user, deletedName)
}
