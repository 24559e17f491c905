package postgres

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/spelling"
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
	return listed(ctx, s, "list invitations", invitationsSQL, pgx.NamedArgs{"tenant": workspaceID, "id": id},
		func(row pgx.CollectableRow) (i membership.Invitation, err error) {
			var permissions []string
			err = row.Scan(invitationTargets(&i, &permissions)...)
			i.Permissions = perm.FromStrings(permissions)
			return i, err
		})
}

// SaveInvitation stores an invitation with its event and sets its times. With replace, an open one for the same address
// ends. It deletes invitations of the workspace that ended long ago. It returns membership.ErrMember, ErrSent,
// ErrInvited, ErrTooManyInvited or *LimitError.
func (s *Store) SaveInvitation(
	ctx context.Context, i *membership.Invitation, replace bool, token credential.Secret, event audit.Event,
) error {
	tokenHash := credential.Hash(token.Reveal())
	return s.changeMembers(ctx, "save invitation", i.WorkspaceID, event, func(tx pgx.Tx) error {
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
returning made.created_at, made.expires_at`,
			i.ID, i.WorkspaceID, i.Email, i.Permissions.Strings(), i.InviterID, tokenHash,
			membership.Life, maxOpenInvitations, s.mails != nil).Scan(&i.Created, &i.Expires)
		if errors.Is(err, pgx.ErrNoRows) {
			return membership.ErrTooManyInvited
		}
		if err == nil {
			err = countInvitation(ctx, tx, *i)
		}
		if err == nil {
			err = s.mailInvitation(ctx, tx, *i, token)
		}
		if err != nil {
			return err
		}
		return s.record(ctx, tx, event)
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
	return s.changeMembers(ctx, "renew invitation", i.WorkspaceID, event, func(tx pgx.Tx) error {
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
		if err == nil {
			err = s.mailInvitation(ctx, tx, *i, token)
		}
		if err != nil {
			return err
		}
		return s.record(ctx, tx, event)
	})
}

// WithdrawInvitation ends an unanswered invitation with the event, or returns membership.ErrNoInvitation.
func (s *Store) WithdrawInvitation(ctx context.Context, workspaceID, id uuid.UUID, event audit.Event) error {
	return s.changeMembers(ctx, "withdraw invitation", workspaceID, event, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `update account.invitations set ended_at = now(), outcome = 'withdrawn'
			where tenant_id = $1 and id = $2 and ended_at is null`, workspaceID, id)
		if err == nil && tag.RowsAffected() == 0 {
			err = membership.ErrNoInvitation
		}
		if err != nil {
			return err
		}
		return s.record(ctx, tx, event)
	})
}
