package postgres

import (
	"cmp"
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/spelling"
)

// Offer reads the open invitation with the token, or returns membership.ErrNoInvitation.
func (s *Store) Offer(ctx context.Context, tokenHash []byte) (membership.Offer, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	var o membership.Offer
	var permissions []string
	err := s.pool.QueryRow(ctx, `
select t.name, g.name, exists (select from account.users h where h.email = i.email),
  i.mailed, i.id, i.tenant_id, i.email, i.permissions, i.invited_by, u.name, i.created_at, i.expires_at
from account.invitations i
join account.users u on u.id = i.invited_by
join account.tenants t on t.id = i.tenant_id
join account.organisations g on g.id = t.organisation_id
where i.token_hash = $1 and i.ended_at is null and i.expires_at > now()`, tokenHash).
		Scan(append([]any{&o.Workspace, &o.Organisation, &o.HasAccount, &o.Mailed},
			invitationTargets(&o.Invitation, &permissions)...)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return membership.Offer{}, membership.ErrNoInvitation
	}
	if err == nil && !o.HasAccount && len(spelling.Spellings(o.Email)) > 1 {
		_, _, o.HasAccount, err = s.UserByEmail(ctx, o.Email)
	}
	o.Permissions = perm.FromStrings(permissions)
	return o, unavailable("read invitation", err)
}

// Joined implements membership.Answers.
func (s *Store) Joined(ctx context.Context, tokenHash []byte, user uuid.UUID) (workspace string, err error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	err = s.pool.QueryRow(ctx, `
select t.name from account.invitations i
join account.memberships m on m.tenant_id = i.tenant_id and m.user_id = $2
join account.tenants t on t.id = i.tenant_id
where i.token_hash = $1 and i.outcome = 'accepted'`, tokenHash, user).Scan(&workspace)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", membership.ErrNoInvitation
	}
	return workspace, unavailable("read accepted invitation", err)
}

// Accept makes the user with the invitation's address a member, with the event. It returns
// membership.ErrNoInvitation, ErrOtherAddress, ErrUnproven, ErrInviter or ErrMember.
func (s *Store) Accept(ctx context.Context, o membership.Offer, user uuid.UUID, event audit.Event) error {
	return s.changeMembers(ctx, "accept invitation", o.WorkspaceID, event, func(tx pgx.Tx) error {
		if err := isAddressOf(ctx, tx, o.Email, user); err != nil {
			return err
		}
		if proven, err := isProven(ctx, tx, user); err != nil || !proven {
			return cmp.Or(err, membership.ErrUnproven)
		}
		if err := endInvitation(ctx, tx, o, "accepted"); err != nil {
			return err
		}
		return s.join(ctx, tx, o, user, event)
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
	ctx context.Context,
	o membership.Offer,
	user membership.NewUser,
	key passkey.Passkey,
	added, joined audit.Event,
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
	return s.changeMembers(ctx, "accept invitation as new user", o.WorkspaceID, added, func(tx pgx.Tx) error {
		if err := endInvitation(ctx, tx, o, "accepted"); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `insert into account.users (id, email, name, password_hash, email_proven_at,
				email_proven_by)
			select $1, $2, $3, nullif($4, ''), now() + case when $6 then interval '0' end, case when $6 then $7 end
			where not exists (select from account.users where email = any($5))
			on conflict (email) do nothing`,
			user.ID, spelling.Key(o.Email), user.Name, user.PasswordHash.Reveal(), spelling.Spellings(o.Email),
			o.Mailed, useraccount.ByInvitation)
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
		return s.join(ctx, tx, o, user.ID, joined)
	})
}

// join makes the user a member, with the event.
func (s *Store) join(
	ctx context.Context, tx pgx.Tx, o membership.Offer, user uuid.UUID, event audit.Event,
) error {
	if err := inviterGives(ctx, tx, o); err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, `insert into account.memberships (tenant_id, user_id, permissions) values ($1, $2, $3)
		on conflict do nothing`, o.WorkspaceID, user, o.Permissions.Strings())
	if err == nil && tag.RowsAffected() == 0 {
		err = membership.ErrMember
	}
	if err != nil {
		return err
	}
	return s.record(ctx, tx, event)
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
	return s.changeMembers(ctx, "decline invitation", o.WorkspaceID, event, func(tx pgx.Tx) error {
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
		if err := endInvitation(ctx, tx, o, "declined"); err != nil {
			return err
		}
		return s.record(ctx, tx, event)
	})
}
