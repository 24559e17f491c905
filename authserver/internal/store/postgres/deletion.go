package postgres

import (
	"cmp"
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

var _ useraccount.Deletions = (*Store)(nil)

// deletedName replaces the name of a deleted user.
const deletedName = "Deleted user"

// DeletionSummary returns what would end if the account was deleted.
func (s *Store) DeletionSummary(ctx context.Context, user uuid.UUID) (useraccount.Summary, error) {
	var summary useraccount.Summary
	err := s.atomically(ctx, "read what ends with a user", func(tx pgx.Tx) (err error) {
		summary, err = deletionSummary(ctx, tx, user)
		return err
	})
	return summary, err
}

func deletionSummary(ctx context.Context, tx pgx.Tx, user uuid.UUID) (sum useraccount.Summary, err error) {
	sum.Workspaces, err = collect(ctx, tx, pgx.RowToStructByName[useraccount.Workspace], `
select t.id, t.name, `+onlyHolder+` as last_holder
from account.memberships m join account.tenants t on t.id = m.tenant_id
where m.user_id = $1 order by t.name, t.id`, user, perm.OfAccount().Strings())
	if err != nil {
		return sum, err
	}
	err = tx.QueryRow(ctx, `
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
		Scan(&sum.Connections, &sum.Tokens, &sum.SignIns, &sum.SignInMethods, &sum.Invitations, &sum.Applications)
	return sum, err
}

// errJoined reports that a user became a member of another workspace before the user's row was locked. Nothing was
// written.
var errJoined = errors.New("the user joined another workspace meanwhile")

// DeleteUser deletes an account and records the event. It returns membership.ErrLastHolder or audit.ErrNotAuthorized.
// An operator may delete the last holder of a permission in a workspace, and gets admin.ErrNoUser.
func (s *Store) DeleteUser(
	ctx context.Context, user uuid.UUID, event audit.Event,
) (ended useraccount.Ended, err error) {
	for range deadlockTries {
		err = s.atomically(ctx, "delete user", func(tx pgx.Tx) (err error) {
			ended, err = s.deleteUser(ctx, tx, user, event)
			return err
		})
		if !errors.Is(err, errJoined) {
			break
		}
	}
	return ended, err
}

// deleteUser locks the members of the user's workspaces, in the order of their ids, and then the user, as every change
// of members does. A concurrent transaction that holds or needs one of these locks commits either before the deletion,
// which then includes its changes, or after it, and is then refused.
func (s *Store) deleteUser(
	ctx context.Context, tx pgx.Tx, user uuid.UUID, event audit.Event,
) (ended useraccount.Ended, err error) {
	if err := sequentially(ctx, tx); err != nil {
		return ended, err
	}
	locked, err := workspacesOf(ctx, tx, user)
	if err != nil {
		return ended, err
	}
	for _, workspaceID := range locked {
		if err := lockMembers(ctx, tx, workspaceID); err != nil {
			return ended, err
		}
	}
	// "for update", since the new address changes a key: a weaker lock would be upgraded later, which can deadlock.
	exists, err := found(tx.QueryRow(ctx, `select true from account.users where id = $1 and deleted_at is null
		for update`, user))
	operator := event.Authorization != nil && event.Authorization.Operator
	switch {
	case err == nil && !exists && operator:
		err = admin.ErrNoUser
	case err == nil && !exists:
		err = audit.ErrNotAuthorized
	case err == nil:
		err = cmp.Or(stillAllowed(ctx, tx, event.Authorization), mayChangeFactors(ctx, tx, event.Authorization))
	}
	if err != nil {
		return ended, err
	}
	current, err := workspacesOf(ctx, tx, user)
	if err != nil {
		return ended, err
	}
	for _, workspaceID := range current {
		if !slices.Contains(locked, workspaceID) {
			return ended, errJoined
		}
	}
	if ended.Summary, err = deletionSummary(ctx, tx, user); err != nil {
		return ended, err
	}
	if !operator && len(ended.Unmanaged()) > 0 {
		return ended, membership.ErrLastHolder
	}
	if err := s.mailDeletion(ctx, tx, user); err != nil {
		return ended, err
	}
	if err := s.endAccess(ctx, tx, user, current, event, &ended); err != nil {
		return ended, err
	}
	if err := eraseUser(ctx, tx, user, event); err != nil {
		return ended, err
	}
	event.Detail = map[string]any{"tenants": len(current), "grants": len(ended.Grants), "tokens": ended.Tokens}
	if ended.More {
		event.Detail["more"] = true
	}
	return ended, s.record(ctx, tx, event)
}

// workspacesOf returns the workspaces of a user in the order in which transactions lock them.
func workspacesOf(ctx context.Context, tx pgx.Tx, user uuid.UUID) ([]uuid.UUID, error) {
	return collect(ctx, tx, pgx.RowTo[uuid.UUID],
		`select tenant_id from account.memberships where user_id = $1 order by tenant_id`, user)
}

// mailDeletion queues the mail that tells a user of the deletion, even if the user is disabled.
func (s *Store) mailDeletion(ctx context.Context, tx pgx.Tx, user uuid.UUID) error {
	if s.mails == nil {
		return nil
	}
	m := mail.Message{Kind: mail.AccountDeleted}
	err := tx.QueryRow(ctx, `select email, name, now() from account.users where id = $1`, user).
		Scan(&m.Address, &m.Name, &m.Data.At)
	if err != nil {
		return err
	}
	return s.mails.Add(ctx, tx, m)
}

// endAccess ends memberships, grants, tokens and sent invitations, and records an event in each workspace.
func (s *Store) endAccess(
	ctx context.Context, tx pgx.Tx, user uuid.UUID, workspaces []uuid.UUID, event audit.Event, ended *useraccount.Ended,
) error {
	left := event
	left.Action = audit.MemberLeft
	if event.Authorization.Operator {
		left.Action = audit.MemberRemoved
	}
	left.Detail = map[string]any{"account_deleted": true}
	for _, workspaceID := range workspaces {
		if _, _, err := lockMember(ctx, tx, workspaceID, user); err != nil {
			return err
		}
		p, err := endMembership(ctx, tx, workspaceID, user, event.Actor, max(0, endAtOnce-len(ended.Grants)))
		if err != nil {
			return err
		}
		ended.Grants, ended.More = append(ended.Grants, p.credentials().Grants...), ended.More || p.more
		left.WorkspaceID = &workspaceID
		if err := s.record(ctx, tx, left); err != nil {
			return err
		}
	}
	// Grants, tokens and invitations without a membership exist only if another program ended the membership alone.
	others, err := endCredentials(ctx, tx, user, nil, grant.MembershipOver, event.Actor)
	if err != nil {
		return err
	}
	ended.Grants, ended.More = append(ended.Grants, others.Grants...), ended.More || others.More
	_, err = tx.Exec(ctx, `update account.invitations set ended_at = now(), outcome = 'withdrawn'
		where invited_by = $1 and ended_at is null`, user)
	return err
}

// eraseUser deletes the sign-in methods, the name and the address of the user, and declines invitations to the address
// if it was proven to be the user's.
func eraseUser(ctx context.Context, tx pgx.Tx, user uuid.UUID, event audit.Event) error {
	var email string
	if err := tx.QueryRow(ctx, `select email from account.users where id = $1`, user).Scan(&email); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `
with gone as (
  delete from account.invitations where email = any($4)
    and exists (select from account.users where id = $1 and email_proven_at is not null)
  returning id, tenant_id, ended_at
)
insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, request_id)
select gen_random_uuid(), tenant_id, $1, $2, '`+audit.InvitationDeclined+`', 'invitation:' || id, $3
from gone where ended_at is null`, user, event.Actor, event.RequestID, spelling.Spellings(email))
	if err != nil {
		return err
	}
	for _, table := range []string{
		"sign_ins", "passkeys", "identities", "authenticators", "password_resets", "email_changes", "unwanted_mails",
		"access_requests", "idempotency_keys",
	} {
		if _, err := tx.Exec(ctx, `delete from account.`+table+` where user_id = $1`, user); err != nil {
			return err
		}
	}
	if _, err = tx.Exec(ctx, `update account.users set disabled_at = now() where id = $1 and disabled_at is null`,
		user); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `update account.users set email = id || '@deleted.invalid', name = $2, password_hash = null,
		deleted_at = now() where id = $1`, user, deletedName)
	return err
}
