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
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// BeginEmailChange stores a request to change an address, replaces an open one, records the event and mails both
// addresses. A repeated call stores one request. It returns useraccount.ErrTooManyChanges or audit.ErrNotAuthorized.
func (a *Accounts) BeginEmailChange(ctx context.Context, r useraccount.EmailRequest, event audit.Event) error {
	_, err := a.changeFactors(ctx, "begin change of address", &event, func(tx *transaction) {
		tx.lock("address " + r.Email) // one at a time for each address, whose requests are limited
		var repeated, taken bool
		var own, others int
		tx.row(`
select exists (select from account.email_changes where id = $1),
  exists (select from account.users where email = any($4) and id <> $2),
  (select count(*) from account.email_changes where user_id = $2 and created_at > now() - interval '1 day'),
  (select count(distinct user_id) from account.email_changes
    where new_email = $3 and user_id <> $2 and created_at > now() - interval '1 day')`,
			r.ID, r.UserID, r.Email, spelling.Spellings(r.Email)).read(&repeated, &taken, &own, &others)
		if repeated {
			tx.noEvent = true
			return
		}
		tx.require(own < useraccount.MaxEmailChanges && others < useraccount.MaxEmailChangesToAddress,
			useraccount.ErrTooManyChanges)
		tx.endEmailChange(r.UserID, "replaced")
		tx.exec(`insert into account.email_changes
			(id, user_id, old_email, new_email, old_token_hash, new_token_hash, expires_at)
			select $1, id, email, $3, $4, $5, now() + $6::interval from account.users where id = $2`, r.ID, r.UserID,
			r.Email, credential.Hash(r.OldToken.Reveal()), credential.Hash(r.NewToken.Reveal()),
			useraccount.EmailChangeLife)
		tx.mailEmailChange(r, taken)
	})
	return err
}

// mailEmailChange mails a link to the old address and one to the new. If the new address is taken, it gets no link.
func (t *transaction) mailEmailChange(r useraccount.EmailRequest, taken bool) {
	m := mail.Message{
		Kind:  mail.EmailChangeOld,
		Token: r.OldToken,
		Data:  mail.Data{Email: r.Email, Device: r.Device, Network: r.Network},
	}
	t.row(`select expires_at from account.email_changes where id = $1`, r.ID).read(&m.Expires)
	t.mailMessage(r.UserID, m)
	other := mail.Message{Kind: mail.EmailChangeNew, Token: r.NewToken, Expires: m.Expires}
	var to mail.Recipient
	if taken {
		other.Kind, other.Token = mail.EmailTaken, ""
		to = t.recipientAt(r.Email)
	} else {
		to = t.recipient(r.UserID)
	}
	to.Address, to.Name = r.Email, ""
	t.queue(other.To(to))
}

// endEmailChange ends the open request of a user, if there is one.
func (t *transaction) endEmailChange(user uuid.UUID, outcome string) {
	t.exec(`update account.email_changes set ended_at = now(), outcome = $2
		where user_id = $1 and ended_at is null`, user, outcome)
}

// emailChangeSQL selects valid requests. Any other change of the address ends a request.
const emailChangeSQL = `
select c.old_email as old, c.new_email as new, c.new_token_hash = $1 as to_new,
  c.old_confirmed_at is not null as old_confirmed, c.new_confirmed_at is not null as new_confirmed,
  c.expires_at as expires
from account.email_changes c join account.users u on u.id = c.user_id and u.disabled_at is null
  and u.email = c.old_email
where c.ended_at is null and c.expires_at > now() and `

const byToken = `(c.old_token_hash = $1 or c.new_token_hash = $1)`

var scanEmailChange = pgx.RowToStructByName[useraccount.EmailChange]

// EmailChangeLink reads the request of a valid link, or returns useraccount.ErrLinkInvalid.
func (a *Accounts) EmailChangeLink(ctx context.Context, token credential.Secret) (useraccount.EmailChange, error) {
	if !credential.EmailChange.Matches(token.Reveal()) {
		return useraccount.EmailChange{}, useraccount.ErrLinkInvalid
	}
	return need(ctx, a.db, "read change of address", useraccount.ErrLinkInvalid, scanEmailChange,
		emailChangeSQL+byToken, credential.Hash(token.Reveal()))
}

// OpenEmailChange reads the open request of a user, or returns nil.
func (a *Accounts) OpenEmailChange(ctx context.Context, user uuid.UUID) (*useraccount.EmailChange, error) {
	c, _, err := one(ctx, a.db, "read change of address", pgx.RowToAddrOfStructByName[useraccount.EmailChange],
		emailChangeSQL+`c.user_id = $2`, []byte{}, user)
	return c, err
}

// lockEmailChange locks the user of a valid link and then the request, or fails with useraccount.ErrLinkInvalid. It
// locks the user "for update", because a new address changes a key.
func (t *transaction) lockEmailChange(tokenHash []byte) (user uuid.UUID, c useraccount.EmailChange) {
	t.require(t.row(`select user_id from account.email_changes c where `+byToken, tokenHash).find(&user),
		useraccount.ErrLinkInvalid)
	t.exec(`select from account.users where id = $1 for update`, user)
	locked := rowsOf(t, scanEmailChange, emailChangeSQL+byToken+` for update of c`, tokenHash)
	if len(locked) == 0 {
		t.refuse(useraccount.ErrLinkInvalid)
		return user, c
	}
	return user, locked[0]
}

// ConfirmEmailChange confirms a link. If the other link is confirmed, it changes the address, records the event, ends
// the user's links to set a password, since they were sent to the old address, and returns true. It returns
// useraccount.ErrLinkInvalid or ErrEmailTaken.
func (a *Accounts) ConfirmEmailChange(
	ctx context.Context, token credential.Secret, event audit.Event,
) (c useraccount.EmailChange, changed bool, err error) {
	tokenHash, taken := credential.Hash(token.Reveal()), false
	err = a.atomically(ctx, "confirm change of address", func(tx *transaction) {
		changed, taken = false, false
		var user uuid.UUID
		user, c = tx.lockEmailChange(tokenHash)
		confirm := `update account.email_changes c set old_confirmed_at = now() where `
		if c.ToNew {
			confirm = `update account.email_changes c set new_confirmed_at = now() where `
		}
		tx.exec(confirm+byToken, tokenHash)
		if c.ToNew && !c.OldConfirmed || !c.ToNew && !c.NewConfirmed {
			return
		}
		if taken = tx.emailTaken(user, c.New); taken {
			tx.endEmailChange(user, "taken")
			return
		}
		tx.endEmailChange(user, "changed")
		changed = true
		event.UserID, event.Actor, event.Subject = &user, "user:"+user.String(), "user:"+user.String()
		tx.changeEmail(user, c.New, useraccount.ByEmailChange)
		tx.record(event)
	})
	if err == nil && taken {
		err = useraccount.ErrEmailTaken
	}
	return c, changed && err == nil, err
}

func (t *transaction) emailTaken(user uuid.UUID, email string) bool {
	return t.has(`select true from account.users where email = any($2) and id <> $1`, user, spelling.Spellings(email))
}

// changeEmail replaces the address of a locked user and mails both addresses. The links of a change
// prove the new address. An operator's change does not: it does not tell who created the account.
func (t *transaction) changeEmail(user uuid.UUID, email string, by useraccount.Proof) {
	changed := mail.Data{Email: email, Operator: by == useraccount.ByOperator}
	t.mail(user, mail.EmailChanged, changed)
	t.exec(`update account.users set email = $2,
			email_proven_at = now() + case when $4 or email_proven_at is not null then interval '0' end,
			email_proven_by = case when $4 or email_proven_at is not null then $3 end
		where id = $1`, user, spelling.Key(email), by, by == useraccount.ByEmailChange)
	t.violation(uniqueViolation, "users", useraccount.ErrEmailTaken) // another user took it meanwhile
	t.mail(user, mail.EmailChanged, changed)
	t.exec(`delete from account.password_resets where user_id = $1`, user)
}

// StopEmailChange ends the request of a link and records the event, or returns useraccount.ErrLinkInvalid.
func (a *Accounts) StopEmailChange(ctx context.Context, token credential.Secret, event audit.Event) error {
	return a.atomically(ctx, "stop change of address", func(tx *transaction) {
		user, c := tx.lockEmailChange(credential.Hash(token.Reveal()))
		tx.endEmailChange(user, "stopped")
		event.UserID, event.Subject = &user, "user:"+user.String()
		event.Detail["by"] = "old"
		if c.ToNew {
			event.Detail["by"] = "new"
		}
		tx.record(event)
	})
}

// SetEmail replaces the address of a user for an operator, records the event, and ends an open request of the user. It
// returns admin.ErrNoUser or useraccount.ErrEmailTaken.
func (a *Accounts) SetEmail(ctx context.Context, user uuid.UUID, email string, event audit.Event) error {
	return a.change(ctx, "set address", &event, func(tx *transaction) {
		tx.require(tx.lockUndeleted(user), admin.ErrNoUser)
		tx.endEmailChange(user, "replaced")
		tx.require(!tx.emailTaken(user, email), useraccount.ErrEmailTaken)
		tx.changeEmail(user, email, useraccount.ByOperator)
	})
}

// lockUndeleted locks a user whose address may change, which is a key: a weaker lock would be upgraded later, which can
// deadlock. It returns false if there is no such user.
func (t *transaction) lockUndeleted(user uuid.UUID) bool {
	return t.has(`select true from account.users where id = $1 and deleted_at is null for update`, user)
}

// proven is the condition that the address of a user u was proven. Without it, nothing that the account has is known to
// be the user's: what proves the address takes the account over, whatever second factor it has.
const proven = `(u.email_proven_at is not null)`

// isProven reports whether the address of a user was proven. The caller's transaction must hold the user's row.
func (t *transaction) isProven(user uuid.UUID) bool {
	return t.has(`select true from account.users u where u.id = $1 and `+proven, user)
}

// takeOver proves the address of a user whose account another person may have created: it ends everything that gives
// access to the account, except the linked account at the issuer keep, records the event and mails the user and the
// members who can manage members of the user's workspaces. The caller's transaction must hold the user's row.
func (t *transaction) takeOver(
	user uuid.UUID, by useraccount.Proof, keep string, event audit.Event,
) *useraccount.Takeover {
	t.sequentially()
	methods := slices.DeleteFunc(t.allSignInMethods(user), func(m admin.SignInMethod) bool {
		return m.Kind == admin.LinkedAccount && m.ID == keep
	})
	t.removeSignInMethods(user, methods, event.Actor)
	t.endSignIns(user)
	t.endEmailChange(user, "replaced")
	t.endResets(user)
	t.exec(`delete from account.idempotency_keys where user_id = $1`, user)
	t.exec(`delete from account.webhooks where user_id = $1`, user) // they would send what this user may read
	t.withdrawInvitations(user)
	over := &useraccount.Takeover{Methods: len(methods)}
	over.EndedCredentials = t.endCredentials(user, nil, grant.AddressProven, event.Actor)
	t.exec(`update account.users set password_hash = null, email_proven_at = now(), email_proven_by = $2
		where id = $1`, user, by)
	event.Action, event.Subject, event.UserID = audit.UserEmailProven, "user:"+user.String(), &user
	event.Detail = map[string]any{
		"by":      by,
		"methods": over.Methods,
		"tokens":  over.Tokens,
		"grants":  len(over.Grants),
	}
	if over.More {
		event.Detail["more"] = true
	}
	t.record(event)
	t.mail(user, mail.AddressProven, mail.Data{PasswordSet: by != useraccount.ByUpstream})
	t.mailTakeover(user)
	return over
}

// mailTakeover mails the members who can manage members of a user's workspaces that the account was taken over.
func (t *transaction) mailTakeover(user uuid.UUID) {
	type reader struct {
		ID                             uuid.UUID
		WorkspaceID, Workspace, Member string
	}
	for _, r := range rowsOf(t, pgx.RowToStructByPos[reader], `
select o.user_id, t.id::text, t.name, u.name from account.memberships m
join account.memberships o on o.tenant_id = m.tenant_id and o.user_id <> m.user_id and $2 = any(o.permissions)
join account.tenants t on t.id = m.tenant_id join account.users u on u.id = m.user_id
where m.user_id = $1 order by t.id, o.user_id`, user, string(perm.AccountWriteMembers)) {
		path := "/settings/members/member?tenant=" + r.WorkspaceID + "&id=" + user.String()
		t.mail(r.ID, mail.MemberAddressProven, mail.Data{Person: r.Member, Workspace: r.Workspace, Path: path})
	}
}

// endCredentials ends the grants and personal access tokens of a user in all workspaces, except those whose ids are in
// keep, with an event for each. It returns those that it revoked, so that the caller can update Redis; EndNext revokes
// the others.
func (t *transaction) endCredentials(
	user uuid.UUID, keep []uuid.UUID, reason grant.Reason, actor string,
) useraccount.EndedCredentials {
	workspaces := rowsOf(t, pgx.RowTo[uuid.UUID], `
select g.tenant_id from account.grants g where g.user_id = $1
union select p.tenant_id from account.personal_access_tokens p where p.user_id = $1 order by 1`, user)
	return ending{user: &user, keep: keep, reason: reason, actor: actor}.beginIn(t, workspaces).credentials()
}

// ConfirmEmail proves the address of a user by an operator's word, with the event, and ends nothing. It returns false
// if the address was proven already, or admin.ErrNoUser.
func (a *Accounts) ConfirmEmail(ctx context.Context, user uuid.UUID, event audit.Event) (confirmed bool, err error) {
	return a.changeIf(ctx, "confirm address", &event, func(tx *transaction) {
		tx.holdUser(user)
		tx.change(`update account.users set email_proven_at = now(), email_proven_by = $2
			where id = $1 and email_proven_at is null`, user, useraccount.ByOperator)
	})
}

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

// errJoined reports that a user became a member of another workspace before the user's row was locked. atomically
// tries again.
var errJoined = errors.New("the user joined another workspace meanwhile")

// DeleteUser deletes an account and records the event. It returns membership.ErrLastHolder or audit.ErrNotAuthorized.
// An operator may delete the last holder of a permission in a workspace, and gets admin.ErrNoUser.
func (a *Accounts) DeleteUser(
	ctx context.Context, user uuid.UUID, event audit.Event,
) (ended useraccount.Ended, err error) {
	err = a.atomically(ctx, "delete user", func(tx *transaction) { ended = tx.deleteUser(user, event) })
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
		if !slices.Contains(locked, workspaceID) {
			t.fail(errJoined)
		}
	}
	ended.Summary = t.deletionSummary(user)
	t.require(operator || len(ended.Unmanaged()) == 0, membership.ErrLastHolder)
	if t.err != nil {
		return ended
	}
	m := mail.Message{Kind: mail.AccountDeleted}.To(t.recipient(user)) // even if the user is disabled
	t.row(`select now()`).read(&m.Data.At)
	t.queue(m)
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
// if it was proven to be the user's. The usage of the user's credentials has too many rows for one transaction: no list
// has that of deleted users, and retention deletes it (ofDeletedUsers).
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
	t.forgetNetworks(user)
	t.exec(`update account.users set disabled_at = now() where id = $1 and disabled_at is null`, user)
	t.exec(`update account.users set email = id || '@deleted.invalid', name = $2, password_hash = null,
		mail_language = default, deleted_at = now() where id = $1`, user, deletedName)
}

// forgetNetworks deletes the networks of a user's credentials.
func (t *transaction) forgetNetworks(user uuid.UUID) {
	for _, workspaceID := range rowsOf(t, pgx.RowTo[uuid.UUID],
		`select distinct tenant_id from account.credential_networks where user_id = $1 order by 1`, user) {
		// The locks of account.note_networks, in its order.
		t.exec(`select from account.credential_networks where tenant_id = $1 and user_id = $2 and is_first
			order by credential_id for update`, workspaceID, user)
		t.exec(`delete from account.credential_networks where tenant_id = $1 and user_id = $2`, workspaceID, user)
	}
}
