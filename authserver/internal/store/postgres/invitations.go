package postgres

import (
	"cmp"
	"context"
	"errors"
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
	// invitationsSQL selects invitations that were not answered. One that expired can be renewed for a while.
	invitationsSQL = `
select i.id, i.tenant_id, i.email, i.permissions, i.invited_by, u.name, i.created_at, i.expires_at
from account.invitations i join account.users u on u.id = i.invited_by
where i.ended_at is null and i.expires_at > now() - interval '30 days' and i.tenant_id = @tenant
  and (@id::uuid is null or i.id = @id)
order by i.created_at desc, i.id desc`
)

func invitationTargets(i *membership.Invitation, permissions *[]string) []any {
	return []any{&i.ID, &i.WorkspaceID, &i.Email, permissions, &i.InviterID, &i.Inviter, &i.Created, &i.Expires}
}

// Invitations lists the invitations of a workspace that were not answered, newest first.
func (s *Store) Invitations(ctx context.Context, workspaceID uuid.UUID) ([]membership.Invitation, error) {
	return s.invitations(ctx, workspaceID, nil)
}

// Invitation reads an invitation that was not answered, or returns membership.ErrNoInvitation.
func (s *Store) Invitation(ctx context.Context, workspaceID, id uuid.UUID) (membership.Invitation, error) {
	one, err := s.invitations(ctx, workspaceID, &id)
	if err == nil && len(one) == 0 {
		err = membership.ErrNoInvitation
	}
	if err != nil {
		return membership.Invitation{}, err
	}
	return one[0], nil
}

func (s *Store) invitations(
	ctx context.Context, workspaceID uuid.UUID, id *uuid.UUID,
) ([]membership.Invitation, error) {
	scan := func(row pgx.CollectableRow) (i membership.Invitation, err error) {
		var permissions []string
		err = row.Scan(invitationTargets(&i, &permissions)...)
		i.Permissions = perm.FromStrings(permissions)
		return i, err
	}
	return listLong(ctx, s, "list invitations", scan, invitationsSQL, pgx.NamedArgs{"tenant": workspaceID, "id": id})
}

// SaveInvitation stores an invitation with its event and sets its times. With replace, an open one for the same address
// ends. It deletes invitations of the workspace that ended long ago. It returns membership.ErrMember, ErrSent,
// ErrInvited, ErrTooManyInvited or *LimitError.
func (s *Store) SaveInvitation(
	ctx context.Context, i *membership.Invitation, replace bool, token credential.Secret, event audit.Event,
) error {
	tokenHash := credential.Hash(token.Reveal())
	return s.changeMembers(ctx, "save invitation", i.WorkspaceID, &event, func(tx pgx.Tx) error {
		spellings := spelling.Spellings(i.Email)
		member, err := found(tx.QueryRow(ctx, `select true from account.memberships m
			join account.users u on u.id = m.user_id where m.tenant_id = $1 and u.email = any($2)`,
			i.WorkspaceID, spellings))
		if err == nil && member {
			err = membership.ErrMember
		}
		if err == nil {
			err = checkNotSent(ctx, tx, *i, spellings, replace)
		}
		if err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, `delete from account.invitations where tenant_id = $1
			and coalesce(ended_at, expires_at) < now() - interval '30 days'`, i.WorkspaceID); err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, `update account.invitations set ended_at = now(), outcome = 'replaced'
			where tenant_id = $1 and email = any($2) and ended_at is null`, i.WorkspaceID, spellings); err != nil {
			return err
		}
		err = tx.QueryRow(ctx, `
insert into account.invitations as made (id, tenant_id, email, permissions, invited_by, token_hash, expires_at, mailed)
select $1, $2, $3, $4, $5, $6, now() + $7::interval, $9
where (select count(*) from account.invitations where tenant_id = $2 and ended_at is null) < $8
returning made.created_at, made.expires_at`, i.ID, i.WorkspaceID, i.Email, i.Permissions.Strings(), i.InviterID,
			tokenHash, membership.Life, maxOpenInvitations, s.mails != nil).Scan(&i.Created, &i.Expires)
		if errors.Is(err, pgx.ErrNoRows) {
			return membership.ErrTooManyInvited
		}
		if err == nil {
			err = countInvitation(ctx, tx, *i)
		}
		if err != nil {
			return err
		}
		return s.mailInvitation(ctx, tx, *i, token)
	})
}

// checkNotSent returns membership.ErrSent if an invitation has the id of i, and, without replace, ErrInvited if another
// one for its address, in one of its spellings, is open.
func checkNotSent(ctx context.Context, tx pgx.Tx, i membership.Invitation, spellings []string, replace bool) error {
	var sent, open bool
	err := tx.QueryRow(ctx, `select count(*) filter (where id = $2) > 0,
			count(*) filter (where ended_at is null and expires_at > now()) > 0
		from account.invitations where tenant_id = $1 and (id = $2 or email = any($3))`,
		i.WorkspaceID, i.ID, spellings).Scan(&sent, &open)
	switch {
	case err == nil && sent:
		return membership.ErrSent
	case err == nil && open && !replace:
		return membership.ErrInvited
	}
	return err
}

// RenewInvitation gives an unanswered invitation that expires at i.Expires another token, inviter and end, with the
// event, or returns membership.ErrNoInvitation or *LimitError.
func (s *Store) RenewInvitation(
	ctx context.Context, i *membership.Invitation, token credential.Secret, event audit.Event,
) error {
	tokenHash := credential.Hash(token.Reveal())
	return s.changeMembers(ctx, "renew invitation", i.WorkspaceID, &event, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `update account.invitations
			set token_hash = $3, invited_by = $4, expires_at = now() + $5::interval, mailed = $7
			where tenant_id = $1 and id = $2 and ended_at is null and expires_at = $6 returning expires_at`,
			i.WorkspaceID, i.ID, tokenHash, i.InviterID, membership.Life, i.Expires, s.mails != nil).Scan(&i.Expires)
		if errors.Is(err, pgx.ErrNoRows) {
			return membership.ErrNoInvitation
		}
		if err == nil {
			err = countInvitation(ctx, tx, *i)
		}
		if err != nil {
			return err
		}
		return s.mailInvitation(ctx, tx, *i, token)
	})
}

// WithdrawInvitation ends an unanswered invitation with the event, or returns membership.ErrNoInvitation.
func (s *Store) WithdrawInvitation(ctx context.Context, workspaceID, id uuid.UUID, event audit.Event) error {
	return s.changeMembers(ctx, "withdraw invitation", workspaceID, &event, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `update account.invitations set ended_at = now(), outcome = 'withdrawn'
			where tenant_id = $1 and id = $2 and ended_at is null`, workspaceID, id)
		if err == nil && tag.RowsAffected() == 0 {
			err = membership.ErrNoInvitation
		}
		return err
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

// countInvitation counts the message of an invitation in the transaction that stores the invitation, or returns a
// *membership.LimitError. The caller has locked the workspace's members and the inviter. The lock on the address is the
// last one of the transaction.
func countInvitation(ctx context.Context, tx pgx.Tx, i membership.Invitation) error {
	email := credential.Hash(spelling.Key(i.Email))
	if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended('invited ' || encode($1, 'hex'), 0))`,
		email); err != nil {
		return err
	}
	limits := []membership.Limit{
		membership.PerInviter, membership.PerWorkspace, membership.PerAddressOfInviter,
		membership.PerAddressInWorkspace, membership.PerAddress,
	}
	rows, err := tx.Query(ctx, limitedSQL, pgx.NamedArgs{"inviter": i.InviterID, "tenant": i.WorkspaceID,
		"email": email, "window": membership.LimitWindow, "perInviter": limits[0].Most, "perWorkspace": limits[1].Most,
		"perAddressOfInviter": limits[2].Most, "perAddressInWorkspace": limits[3].Most, "perAddress": limits[4].Most})
	if err != nil {
		return err
	}
	var reached *membership.LimitError
	var which int
	var seconds float64
	_, err = pgx.ForEachRow(rows, []any{&which, &seconds}, func() error {
		wait := time.Duration(seconds * float64(time.Second))
		if reached == nil || wait > reached.Wait {
			reached = &membership.LimitError{Limit: limits[which], Wait: wait}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if reached != nil {
		return reached
	}
	batch := &pgx.Batch{}
	batch.Queue(`insert into account.invitation_messages (tenant_id, inviter_id, email_hash) values ($1, $2, $3)`,
		i.WorkspaceID, i.InviterID, email)
	batch.Queue(`delete from account.invitation_messages where (tenant_id, id) in (
		select tenant_id, id from account.invitation_messages where sent_at <= now() - $1::interval
		order by sent_at limit 100 for update skip locked)`, membership.LimitWindow)
	return tx.SendBatch(ctx, batch).Close()
}

// Offer reads the open invitation with the token, or returns membership.ErrNoInvitation.
func (s *Store) Offer(ctx context.Context, tokenHash []byte) (membership.Offer, error) {
	scan := func(row pgx.CollectableRow) (o membership.Offer, err error) {
		var permissions []string
		err = row.Scan(append([]any{&o.Workspace, &o.Organisation, &o.HasAccount, &o.Mailed},
			invitationTargets(&o.Invitation, &permissions)...)...)
		o.Permissions = perm.FromStrings(permissions)
		return o, err
	}
	o, found, err := one(ctx, s, "read invitation", scan, `
select t.name, g.name, exists (select from account.users h where h.email = i.email),
  i.mailed, i.id, i.tenant_id, i.email, i.permissions, i.invited_by, u.name, i.created_at, i.expires_at
from account.invitations i
join account.users u on u.id = i.invited_by
join account.tenants t on t.id = i.tenant_id
join account.organisations g on g.id = t.organisation_id
where i.token_hash = $1 and i.ended_at is null and i.expires_at > now()`, tokenHash)
	if err == nil && !found {
		err = membership.ErrNoInvitation
	}
	if err == nil && !o.HasAccount && len(spelling.Spellings(o.Email)) > 1 {
		_, _, o.HasAccount, err = s.UserByEmail(ctx, o.Email)
	}
	return o, err
}

// Joined implements membership.Answers.
func (s *Store) Joined(ctx context.Context, tokenHash []byte, user uuid.UUID) (workspace string, err error) {
	workspace, found, err := one(ctx, s, "read accepted invitation", pgx.RowTo[string], `
select t.name from account.invitations i
join account.memberships m on m.tenant_id = i.tenant_id and m.user_id = $2
join account.tenants t on t.id = i.tenant_id
where i.token_hash = $1 and i.outcome = 'accepted'`, tokenHash, user)
	if err == nil && !found {
		err = membership.ErrNoInvitation
	}
	return workspace, err
}

// Accept makes the user with the invitation's address a member, with the event. It returns
// membership.ErrNoInvitation, ErrOtherAddress, ErrUnproven, ErrInviter or ErrMember.
func (s *Store) Accept(ctx context.Context, o membership.Offer, user uuid.UUID, event audit.Event) error {
	return s.changeMembers(ctx, "accept invitation", o.WorkspaceID, &event, func(tx pgx.Tx) error {
		if err := isAddressOf(ctx, tx, o.Email, user); err != nil {
			return err
		}
		if proven, err := isProven(ctx, tx, user); err != nil || !proven {
			return cmp.Or(err, membership.ErrUnproven)
		}
		if err := endInvitation(ctx, tx, o, "accepted"); err != nil {
			return err
		}
		return join(ctx, tx, o, user)
	})
}

// AcceptAsNewUser creates a user with the invitation's address, and makes the user a member, with both events. It
// returns membership.ErrNoInvitation, ErrAccountExists or ErrInviter.
func (s *Store) AcceptAsNewUser(
	ctx context.Context, o membership.Offer, user membership.NewUser, added, joined audit.Event,
) error {
	return s.acceptAsNewUser(ctx, o, user, added, joined, func(pgx.Tx) error { return nil })
}

// AcceptWithPasskey is like AcceptAsNewUser, for a user with a passkey and no password.
func (s *Store) AcceptWithPasskey(
	ctx context.Context, o membership.Offer, user membership.NewUser, key passkey.Passkey, added, joined audit.Event,
) error {
	return s.acceptAsNewUser(ctx, o, user, added, joined, func(tx pgx.Tx) error {
		inserted, err := insertPasskey(ctx, tx, key)
		if err == nil && !inserted {
			err = membership.ErrPasskeyExists
		}
		if err != nil {
			return err
		}
		event := added
		event.Action, event.Subject = audit.PasskeyAdded, "passkey:"+key.ID.String()
		event.Detail = map[string]any{"name": key.Name}
		return s.record(ctx, tx, event)
	})
}

// acceptAsNewUser creates the user and the membership in one transaction. credentials adds the sign-in methods. The
// address is proven if the link was mailed.
func (s *Store) acceptAsNewUser(
	ctx context.Context,
	o membership.Offer,
	user membership.NewUser,
	added, joined audit.Event,
	credentials func(pgx.Tx) error,
) error {
	return s.changeMembers(ctx, "accept invitation as new user", o.WorkspaceID, &joined, func(tx pgx.Tx) error {
		if err := endInvitation(ctx, tx, o, "accepted"); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `insert into account.users (id, email, name, password_hash, email_proven_at,
				email_proven_by)
			select $1, $2, $3, nullif($4, ''), now() + case when $6 then interval '0' end, case when $6 then $7 end
			where not exists (select from account.users where email = any($5))
			on conflict (email) do nothing`, user.ID, spelling.Key(o.Email), user.Name, user.PasswordHash.Reveal(),
			spelling.Spellings(o.Email), o.Mailed, useraccount.ByInvitation)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return membership.ErrAccountExists
		}
		if err := s.record(ctx, tx, added); err != nil {
			return err
		}
		if err := credentials(tx); err != nil {
			return err
		}
		return join(ctx, tx, o, user.ID)
	})
}

// join makes the user a member.
func join(ctx context.Context, tx pgx.Tx, o membership.Offer, user uuid.UUID) error {
	if err := inviterGives(ctx, tx, o); err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, `insert into account.memberships (tenant_id, user_id, permissions) values ($1, $2, $3)
		on conflict do nothing`, o.WorkspaceID, user, o.Permissions.Strings())
	if err == nil && tag.RowsAffected() == 0 {
		err = membership.ErrMember
	}
	return err
}

// endInvitation ends an open invitation that is as the offer was read, or returns membership.ErrNoInvitation. An
// invitation that was renewed since has another inviter or end.
func endInvitation(ctx context.Context, tx pgx.Tx, o membership.Offer, outcome string) error {
	tag, err := tx.Exec(ctx, `update account.invitations set ended_at = now(), outcome = $4
		where tenant_id = $5 and id = $1 and invited_by = $2 and expires_at = $3 and ended_at is null
			and expires_at > now()`, o.ID, o.InviterID, o.Expires, outcome, o.WorkspaceID)
	if err == nil && tag.RowsAffected() == 0 {
		err = membership.ErrNoInvitation
	}
	return err
}

// inviterGives returns membership.ErrInviter if the inviter could no longer send the invitation (M4).
func inviterGives(ctx context.Context, tx pgx.Tx, o membership.Offer) error {
	var permissions []string
	err := tx.QueryRow(ctx, `select m.permissions from account.memberships m
		join account.users u on u.id = m.user_id and u.disabled_at is null
		where m.tenant_id = $1 and m.user_id = $2 for share of m`, o.WorkspaceID, o.InviterID).Scan(&permissions)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	held := perm.FromStrings(permissions)
	if err != nil || !held.Has(perm.AccountWriteMembers) || !held.HasAll(o.Permissions) {
		return membership.ErrInviter
	}
	return nil
}

// isAddressOf returns membership.ErrOtherAddress if the user has another address.
func isAddressOf(ctx context.Context, tx pgx.Tx, email string, user uuid.UUID) error {
	own, err := found(tx.QueryRow(ctx, `select true from account.users where id = $1 and email = any($2)`, user,
		spelling.Spellings(email)))
	if err == nil && !own {
		err = membership.ErrOtherAddress
	}
	return err
}

// Decline ends an invitation with the event. user is nil for a person who is not signed in. Decline returns
// membership.ErrNoInvitation, ErrOtherAddress or, if the link was mailed, ErrAccountExists.
func (s *Store) Decline(ctx context.Context, o membership.Offer, user *uuid.UUID, event audit.Event) error {
	return s.changeMembers(ctx, "decline invitation", o.WorkspaceID, &event, func(tx pgx.Tx) error {
		if user != nil {
			if err := isAddressOf(ctx, tx, o.Email, *user); err != nil {
				return err
			}
		} else if o.Mailed {
			exists, err := found(tx.QueryRow(ctx, `select true from account.users where email = any($1)`,
				spelling.Spellings(o.Email)))
			if err == nil && exists {
				err = membership.ErrAccountExists
			}
			if err != nil {
				return err
			}
		}
		return endInvitation(ctx, tx, o, "declined")
	})
}
