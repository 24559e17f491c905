package postgres

import (
	"context"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

const (
	// maxOpenInvitations limits the open invitations of a workspace.
	maxOpenInvitations = 1000

	invitationColumns = `i.id, i.tenant_id as workspace_id, i.email, i.permissions, i.invited_by as inviter_id,
  u.name as inviter, i.created_at as created, i.expires_at as expires`
	// invitationsSQL selects invitations that were not answered. One that expired can be renewed for a while.
	invitationsSQL = `select ` + invitationColumns + `
from account.invitations i join account.users u on u.id = i.invited_by
where i.ended_at is null and i.expires_at > now() - interval '30 days' and i.tenant_id = @tenant
  and (@id::uuid is null or i.id = @id)
order by i.created_at desc, i.id desc`
)

var scanInvitation = withPermissions(func(i *membership.Invitation) *perm.Set { return &i.Permissions })

// Invitations lists the invitations of a workspace that were not answered, newest first.
func (a *Accounts) Invitations(ctx context.Context, workspaceID uuid.UUID) ([]membership.Invitation, error) {
	return listLong(ctx, a.db, "list invitations", scanInvitation, invitationsSQL,
		pgx.NamedArgs{"tenant": workspaceID, "id": nil})
}

// Invitation reads an invitation that was not answered, or returns membership.ErrNoInvitation.
func (a *Accounts) Invitation(ctx context.Context, workspaceID, id uuid.UUID) (membership.Invitation, error) {
	return need(ctx, a.db, "list invitations", membership.ErrNoInvitation, scanInvitation, invitationsSQL,
		pgx.NamedArgs{"tenant": workspaceID, "id": id})
}

// SaveInvitations implements membership.Invitations. It deletes invitations of the workspace that ended long ago. It
// returns a *membership.Taken or *LimitError, ErrSent or ErrTooManyInvited.
func (a *Accounts) SaveInvitations(
	ctx context.Context, workspaceID uuid.UUID, drafts []membership.Draft,
) (saved []membership.Draft, err error) {
	event := drafts[0].Event
	err = a.changeMembers(ctx, "save invitations", workspaceID, &event, func(tx *transaction) {
		tx.noEvent = true // each invitation has its own
		saved = tx.unsent(workspaceID, drafts)
		tx.exec(`delete from account.invitations where tenant_id = $1
			and coalesce(ended_at, expires_at) < now() - interval '30 days'`, workspaceID)
		for i := range saved {
			if saved[i].Answers != nil {
				tx.answerRequest(workspaceID, *saved[i].Answers)
			}
			tx.saveInvitation(&saved[i])
		}
		tx.countInvitations(saved)
		for _, d := range saved {
			tx.mailInvitation(d.Invitation, d.Token)
			tx.record(d.Event)
		}
	})
	return saved, err
}

// unsent returns the drafts that were not stored before, or fails with membership.ErrSent or a *Taken.
func (t *transaction) unsent(workspaceID uuid.UUID, drafts []membership.Draft) (unsent []membership.Draft) {
	type known struct {
		ID           uuid.UUID
		Email        string
		Member, Open bool
	}
	var ids []uuid.UUID
	var all []string
	for _, d := range drafts {
		ids, all = append(ids, d.ID), append(all, spelling.Spellings(d.Email)...)
	}
	found := rowsOf(t, pgx.RowToStructByPos[known], `
select m.user_id, u.email, true, false from account.users u
join account.memberships m on m.tenant_id = $1 and m.user_id = u.id where u.email = any($3)
union all
select id, email, false, ended_at is null and expires_at > now() from account.invitations
where tenant_id = $1 and (id = any($2) or (email = any($3) and ended_at is null))`, workspaceID, ids, all)
	taken := &membership.Taken{}
	for _, d := range drafts {
		var sent, member, open bool
		spellings := spelling.Spellings(d.Email)
		for _, k := range found {
			same := slices.Contains(spellings, k.Email)
			sent, member, open = sent || k.ID == d.ID, member || same && k.Member, open || same && k.Open
		}
		switch {
		case member:
			taken.Members = append(taken.Members, d.Email)
		case sent:
		case open && !d.Replace:
			taken.Invited = append(taken.Invited, d.Email)
		default:
			unsent = append(unsent, d)
		}
	}
	t.require(len(taken.Members)+len(taken.Invited) == 0, taken)
	t.require(len(unsent) > 0, membership.ErrSent)
	return unsent
}

// saveInvitation stores an invitation in place of an open one for the same address, and sets its times.
func (t *transaction) saveInvitation(d *membership.Draft) {
	t.exec(`update account.invitations set ended_at = now(), outcome = 'replaced'
		where tenant_id = $1 and email = any($2) and ended_at is null`, d.WorkspaceID, spelling.Spellings(d.Email))
	t.require(t.row(`
insert into account.invitations as made (id, tenant_id, email, permissions, invited_by, token_hash, expires_at, mailed)
select $1, $2, $3, $4, $5, $6, now() + $7::interval, $9
where (select count(*) from account.invitations where tenant_id = $2 and ended_at is null) < $8
returning made.created_at, made.expires_at`, d.ID, d.WorkspaceID, d.Email, d.Permissions.Strings(), d.InviterID,
		credential.Hash(d.Token.Reveal()), membership.Life, maxOpenInvitations, t.db.mails != nil).
		find(&d.Created, &d.Expires), membership.ErrTooManyInvited)
	t.exec(`update account.access_requests set answered_at = now() where tenant_id = $1
		and user_id = (select id from account.users where email = any($2) limit 1)`,
		d.WorkspaceID, spelling.Spellings(d.Email))
}

// RenewInvitation gives an unanswered invitation that expires at d.Expires another token, inviter and end, with the
// event, and returns it with its end, or membership.ErrNoInvitation or *LimitError.
func (a *Accounts) RenewInvitation(ctx context.Context, d membership.Draft) (membership.Draft, error) {
	renewed := d // the transaction may be repeated, and compares d.Expires each time
	err := a.changeMembers(ctx, "renew invitation", d.WorkspaceID, &d.Event, func(tx *transaction) {
		tx.require(tx.row(`update account.invitations
			set token_hash = $3, invited_by = $4, expires_at = now() + $5::interval, mailed = $7
			where tenant_id = $1 and id = $2 and ended_at is null and expires_at = $6 returning expires_at`,
			d.WorkspaceID, d.ID, credential.Hash(d.Token.Reveal()), d.InviterID, membership.Life, d.Expires,
			a.mails != nil).find(&renewed.Expires), membership.ErrNoInvitation)
		tx.countInvitations([]membership.Draft{renewed})
		tx.mailInvitation(renewed.Invitation, d.Token)
	})
	return renewed, err
}

// WithdrawInvitation ends an unanswered invitation with the event, or returns membership.ErrNoInvitation.
func (a *Accounts) WithdrawInvitation(ctx context.Context, workspaceID, id uuid.UUID, event audit.Event) error {
	return a.changeMembers(ctx, "withdraw invitation", workspaceID, &event, func(tx *transaction) {
		withdrawn := tx.exec(`update account.invitations set ended_at = now(), outcome = 'withdrawn'
			where tenant_id = $1 and id = $2 and ended_at is null`, workspaceID, id)
		tx.require(withdrawn == 1, membership.ErrNoInvitation)
	})
}

// limitedSQL selects the limits that the next invitation would exceed, each with the number of seconds until the window
// contains fewer messages, or messages of fewer other users, than the limit.
const limitedSQL = `
with others as (
  select inviter_id, max(sent_at) as sent_at, max(sent_at) filter (where tenant_id = @tenant) as here_at
  from account.invitation_messages
  where email_hash = @email and inviter_id <> @inviter and sent_at > now() - @window::interval
  group by inviter_id
)
select which, extract(epoch from sent_at + @window::interval - now())::float8 from (
  (select 0 as which, sent_at from account.invitation_messages
    where inviter_id = @inviter and sent_at > now() - @window::interval
    order by sent_at desc offset @perInviter - 1 limit 1)
  union all
  (select 1, sent_at from account.invitation_messages
    where tenant_id = @tenant and sent_at > now() - @window::interval
    order by sent_at desc offset @perWorkspace - 1 limit 1)
  union all
  (select 2, sent_at from account.invitation_messages
    where email_hash = @email and inviter_id = @inviter and sent_at > now() - @window::interval
    order by sent_at desc offset @perAddressOfInviter - 1 limit 1)
  union all
  (select 3, here_at from others where here_at is not null
    order by here_at desc offset @perAddressInWorkspace - 1 limit 1)
  union all
  (select 4, sent_at from others
    where exists (select from account.invitation_messages own
      where own.email_hash = @email and own.tenant_id = @tenant and own.sent_at > now() - @window::interval)
    order by sent_at desc offset @perAddress - 1 limit 1)
) as reached`

// countInvitations counts the messages of invitations, in the order of their addresses: two transactions that invite
// the same people would else wait for each other.
func (t *transaction) countInvitations(drafts []membership.Draft) {
	emails := map[string]membership.Invitation{}
	for _, d := range drafts {
		emails[d.Email] = d.Invitation
	}
	for _, email := range slices.Sorted(maps.Keys(emails)) {
		t.countInvitation(emails[email])
	}
	t.exec(`delete from account.invitation_messages where (tenant_id, id) in (
		select tenant_id, id from account.invitation_messages where sent_at <= now() - $1::interval
		order by sent_at limit 100 for update skip locked)`, membership.LimitWindow)
}

// countInvitation counts the message of an invitation in the transaction that stores the invitation, or fails with a
// *membership.LimitError. The caller has locked the workspace's members and the inviter. The lock on the address is the
// last one of the transaction.
func (t *transaction) countInvitation(i membership.Invitation) {
	email := credential.Hash(spelling.Key(i.Email))
	t.lock("invited " + hex.EncodeToString(email))
	limits := []membership.Limit{
		membership.PerInviter, membership.PerWorkspace, membership.PerAddressOfInviter,
		membership.PerAddressInWorkspace, membership.PerAddress,
	}
	type wait struct {
		Which   int
		Seconds float64
	}
	var reached *membership.LimitError
	for _, w := range rowsOf(t, pgx.RowToStructByPos[wait], limitedSQL, pgx.NamedArgs{"inviter": i.InviterID,
		"tenant": i.WorkspaceID, "email": email, "window": membership.LimitWindow, "perInviter": limits[0].Most,
		"perWorkspace": limits[1].Most, "perAddressOfInviter": limits[2].Most,
		"perAddressInWorkspace": limits[3].Most, "perAddress": limits[4].Most}) {
		wait := time.Duration(w.Seconds * float64(time.Second))
		if reached == nil || wait > reached.Wait {
			reached = &membership.LimitError{Limit: limits[w.Which], Email: i.Email, Wait: wait}
		}
	}
	if reached != nil {
		t.refuse(reached)
	}
	t.exec(`insert into account.invitation_messages (tenant_id, inviter_id, email_hash) values ($1, $2, $3)`,
		i.WorkspaceID, i.InviterID, email)
}

// Offer reads the open invitation with the token, or returns membership.ErrNoInvitation.
func (a *Accounts) Offer(ctx context.Context, tokenHash []byte) (membership.Offer, error) {
	scan := withPermissions(func(o *membership.Offer) *perm.Set { return &o.Permissions })
	o, err := need(ctx, a.db, "read invitation", membership.ErrNoInvitation, scan, `
select t.name as workspace, g.name as organisation, i.mailed,
  exists (select from account.users h where h.email = i.email) as has_account, `+invitationColumns+`
from account.invitations i
join account.users u on u.id = i.invited_by
join account.tenants t on t.id = i.tenant_id
join account.organisations g on g.id = t.organisation_id
where i.token_hash = $1 and i.ended_at is null and i.expires_at > now()`, tokenHash)
	if err == nil && !o.HasAccount && len(spelling.Spellings(o.Email)) > 1 {
		_, _, o.HasAccount, err = a.UserByEmail(ctx, o.Email)
	}
	return o, err
}

// Ended implements membership.Invitations.
func (a *Accounts) Ended(ctx context.Context, tokenHash []byte, user uuid.UUID) (membership.Ended, error) {
	scan := pgx.RowToStructByName[membership.Ended]
	return need(ctx, a.db, "read ended invitation", membership.ErrNoInvitation, scan, `
select i.tenant_id as workspace_id, t.name as workspace,
  case when u.deleted_at is null then u.name else '' end as inviter, coalesce(i.outcome, 'expired') as outcome,
  exists (select from account.memberships m where m.tenant_id = i.tenant_id and m.user_id = $2) as member
from account.invitations i
join account.users u on u.id = i.invited_by
join account.tenants t on t.id = i.tenant_id
where i.token_hash = $1 and (i.ended_at is not null or i.expires_at <= now())`, tokenHash, user)
}

// Accept makes the user with the invitation's address a member, with the event. It returns
// membership.ErrNoInvitation, ErrOtherAddress, ErrUnproven, ErrInviter or ErrMember.
func (a *Accounts) Accept(ctx context.Context, o membership.Offer, user uuid.UUID, event audit.Event) error {
	return a.changeMembers(ctx, "accept invitation", o.WorkspaceID, &event, func(tx *transaction) {
		tx.require(tx.isAddressOf(o.Email, user), membership.ErrOtherAddress)
		tx.require(tx.isProven(user), membership.ErrUnproven)
		tx.endInvitation(o, "accepted")
		tx.join(o, user)
	})
}

// AcceptAsNewUser creates a user with the invitation's address, and makes the user a member, with both events. It
// returns membership.ErrNoInvitation, ErrAccountExists or ErrInviter.
func (a *Accounts) AcceptAsNewUser(
	ctx context.Context, o membership.Offer, user membership.NewUser, added, joined audit.Event,
) error {
	return a.acceptAsNewUser(ctx, o, user, nil, added, joined)
}

// AcceptWithPasskey is like AcceptAsNewUser, for a user with a passkey and no password.
func (a *Accounts) AcceptWithPasskey(
	ctx context.Context, o membership.Offer, user membership.NewUser, key passkey.Passkey, added, joined audit.Event,
) error {
	return a.acceptAsNewUser(ctx, o, user, &key, added, joined)
}

// acceptAsNewUser creates the user, who may have a passkey, and the membership in one transaction. The address is
// proven if the link was mailed.
func (a *Accounts) acceptAsNewUser(
	ctx context.Context, o membership.Offer, user membership.NewUser, key *passkey.Passkey, added, joined audit.Event,
) error {
	return a.changeMembers(ctx, "accept invitation as new user", o.WorkspaceID, &joined, func(tx *transaction) {
		tx.endInvitation(o, "accepted")
		inserted := tx.exec(`insert into account.users (id, email, name, password_hash, email_proven_at,
				email_proven_by)
			select $1, $2, $3, nullif($4, ''), now() + case when $6 then interval '0' end, case when $6 then $7 end
			where not exists (select from account.users where email = any($5))
			on conflict (email) do nothing`, user.ID, spelling.Key(o.Email), user.Name, user.PasswordHash.Reveal(),
			spelling.Spellings(o.Email), o.Mailed, useraccount.ByInvitation)
		tx.require(inserted == 1, membership.ErrAccountExists)
		tx.record(added)
		if key != nil {
			tx.require(tx.insertPasskey(*key), membership.ErrPasskeyExists)
			event := added
			event.Action, event.Subject = audit.PasskeyAdded, "passkey:"+key.ID.String()
			event.Detail = map[string]any{"name": key.Name}
			tx.record(event)
		}
		tx.join(o, user.ID)
	})
}

// withdrawInvitations ends the open invitations that a user sent, in all workspaces.
func (t *transaction) withdrawInvitations(user uuid.UUID) {
	t.exec(`update account.invitations set ended_at = now(), outcome = 'withdrawn'
		where invited_by = $1 and ended_at is null`, user)
}

// join makes the user a member, or fails with membership.ErrInviter if the inviter could no longer invite (M4).
func (t *transaction) join(o membership.Offer, user uuid.UUID) {
	var held perm.Set
	t.row(`select m.permissions from account.memberships m
		join account.users u on u.id = m.user_id and u.disabled_at is null
		where m.tenant_id = $1 and m.user_id = $2 for share of m`, o.WorkspaceID, o.InviterID).find(&held)
	held = ordered(held)
	t.require(held.Has(perm.AccountWriteMembers) && held.HasAll(o.Permissions), membership.ErrInviter)
	joined := t.exec(`insert into account.memberships (tenant_id, user_id, permissions) values ($1, $2, $3)
		on conflict do nothing`, o.WorkspaceID, user, o.Permissions.Strings())
	t.require(joined == 1, membership.ErrMember)
}

// endInvitation ends an open invitation that is as the offer was read, or fails with membership.ErrNoInvitation. An
// invitation that was renewed since has another inviter or end.
func (t *transaction) endInvitation(o membership.Offer, outcome string) {
	ended := t.exec(`update account.invitations set ended_at = now(), outcome = $4
		where tenant_id = $5 and id = $1 and invited_by = $2 and expires_at = $3 and ended_at is null
			and expires_at > now()`, o.ID, o.InviterID, o.Expires, outcome, o.WorkspaceID)
	t.require(ended == 1, membership.ErrNoInvitation)
}

// isAddressOf reports whether the user has the address.
func (t *transaction) isAddressOf(email string, user uuid.UUID) bool {
	return t.has(`select true from account.users where id = $1 and email = any($2)`, user, spelling.Spellings(email))
}

// Decline ends an invitation with the event. user is nil for a person who is not signed in. Decline returns
// membership.ErrNoInvitation, ErrOtherAddress or, if the link was mailed, ErrAccountExists.
func (a *Accounts) Decline(ctx context.Context, o membership.Offer, user *uuid.UUID, event audit.Event) error {
	return a.changeMembers(ctx, "decline invitation", o.WorkspaceID, &event, func(tx *transaction) {
		if user != nil {
			tx.require(tx.isAddressOf(o.Email, *user), membership.ErrOtherAddress)
		} else if o.Mailed {
			exists := tx.has(`select true from account.users where email = any($1)`, spelling.Spellings(o.Email))
			tx.require(!exists, membership.ErrAccountExists)
		}
		tx.endInvitation(o, "declined")
	})
}

// WithdrawnInvitations lists the addresses of the latest invitations to a workspace that a user sent and that were
// withdrawn between two times, at most 200. The index invitations_by_end has the invitations of that time.
func (a *Accounts) WithdrawnInvitations(
	ctx context.Context, in, inviter uuid.UUID, from, to time.Time,
) ([]string, error) {
	return list(ctx, a.db, "list withdrawn invitations", pgx.RowTo[string], `
select email from account.invitations
where tenant_id = $1 and invited_by = $2 and outcome = 'withdrawn' and coalesce(ended_at, expires_at) between $3 and $4
order by email limit 200`, in, inviter, from, to)
}
