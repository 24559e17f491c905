package postgres

import (
	"cmp"
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/mail"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/perm"
)

// AddMember inserts a membership with the event, or returns admin.ErrNoWorkspace, admin.ErrNoUser, admin.ErrUnproven or
// admin.ErrMember.
func (s *Store) AddMember(
	ctx context.Context,
	workspaceID, user uuid.UUID,
	permissions perm.Set,
	event audit.Event,
) error {
	return s.administer(ctx, "add member", func(tx pgx.Tx) error {
		if err := lockMembers(ctx, tx, workspaceID); err != nil {
			return err
		}
		if err := holdUser(ctx, tx, user, new(bool)); err != nil { // a deleted user joins no workspace
			return err
		}
		if proven, err := isProven(ctx, tx, user); err != nil || !proven {
			return cmp.Or(err, admin.ErrUnproven)
		}
		_, err := tx.Exec(ctx, `insert into account.memberships (tenant_id, user_id, permissions) values ($1, $2, $3)`,
			workspaceID, user, permissions.Strings())
		switch {
		case violates(err, uniqueViolation, "memberships"):
			return admin.ErrMember
		case violates(err, foreignKeyViolation, "memberships"): // the user's row is locked
			return admin.ErrNoWorkspace
		}
		if err != nil {
			return err
		}
		return s.record(ctx, tx, event)
	})
}

// Members lists the members of a workspace by e-mail address, or returns admin.ErrNoWorkspace.
func (s *Store) Members(ctx context.Context, workspaceID uuid.UUID) ([]admin.Member, error) {
	exists, err := listed(ctx, s, "find tenant", `select id from account.tenants where id = @tenant`,
		pgx.NamedArgs{"tenant": workspaceID}, pgx.RowTo[uuid.UUID])
	if err == nil && len(exists) == 0 {
		err = admin.ErrNoWorkspace
	}
	if err != nil {
		return nil, err
	}
	return listed(ctx, s, "list members", `
select u.id, u.email, u.name, m.permissions, m.created_at, u.disabled_at is not null
from account.memberships m join account.users u on u.id = m.user_id where m.tenant_id = @tenant order by u.email`,
		pgx.NamedArgs{"tenant": workspaceID}, func(row pgx.CollectableRow) (m admin.Member, err error) {
			return m, row.Scan(&m.UserID, &m.Email, &m.Name, &m.Permissions, &m.Since, &m.Disabled)
		})
}

// SetPermissions replaces a member's permissions with the event, or returns admin.ErrNoMember or admin.ErrUnproven.
func (s *Store) SetPermissions(
	ctx context.Context,
	workspaceID, user uuid.UUID,
	permissions perm.Set,
	event audit.Event,
) (former perm.Set, err error) {
	err = s.administer(ctx, "set permissions", func(tx pgx.Tx) error {
		if err := lockMembers(ctx, tx, workspaceID); err != nil {
			return err
		}
		held, found, err := lockMember(ctx, tx, workspaceID, user)
		if err == nil && !found {
			err = admin.ErrNoMember
		}
		if err != nil {
			return err
		}
		former = held
		err = setPermissions(ctx, tx, workspaceID, user, former, permissions)
		if errors.Is(err, membership.ErrUnproven) {
			err = admin.ErrUnproven
		}
		if err != nil {
			return err
		}
		event.Detail["former"] = former.Strings()
		if err := s.mailMember(ctx, tx, mail.PermissionsChanged, workspaceID, user, permissions); err != nil {
			return err
		}
		return s.record(ctx, tx, event)
	})
	return former, err
}

// RemoveMember ends a membership and the user's grants and personal access tokens in that workspace, in one
// transaction, or returns admin.ErrNoMember. It returns the grants that it revoked so that the caller can update Redis;
// EndNext revokes the others.
func (s *Store) RemoveMember(
	ctx context.Context,
	workspaceID, user uuid.UUID,
	event audit.Event,
) (admin.Removal, error) {
	var ended admin.Removal
	err := s.administer(ctx, "remove member", func(tx pgx.Tx) error {
		if err := lockMembers(ctx, tx, workspaceID); err != nil {
			return err
		}
		_, found, err := lockMember(ctx, tx, workspaceID, user)
		if err == nil && !found {
			err = admin.ErrNoMember
		}
		if err != nil {
			return err
		}
		p, err := endMembership(ctx, tx, workspaceID, user, event.Actor, endAtOnce)
		if err != nil {
			return err
		}
		ended = admin.Removal{Grants: p.ended, Tokens: p.tokens, More: p.more}
		if err := s.mailMember(ctx, tx, mail.Removed, workspaceID, user, nil); err != nil {
			return err
		}
		return s.record(ctx, tx, event)
	})
	return ended, err
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
		for update`, workspaceID, user).
		Scan(&permissions)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	return perm.FromStrings(permissions), err == nil, err
}

// setPermissions replaces the permissions of a locked member. It returns membership.ErrUnproven for an added permission
// of a user whose address was never proven (M6).
func setPermissions(
	ctx context.Context, tx pgx.Tx, workspaceID, user uuid.UUID, former, permissions perm.Set,
) error {
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
func endMembership(
	ctx context.Context, tx pgx.Tx, workspaceID, user uuid.UUID, actor string, most int,
) (part, error) {
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
