package postgres

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/mail"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/perm"
)

// mailInvitation queues the link of an invitation, in the transaction that stores it.
func (s *Store) mailInvitation(
	ctx context.Context,
	tx pgx.Tx,
	i membership.Invitation,
	token credential.Secret,
) error {
	if s.mails == nil {
		return nil
	}
	m := mail.Message{
		Kind:    mail.Invitation,
		Address: i.Email,
		Token:   token,
		Data:    mail.Data{Permissions: titles(i.Permissions)},
		Expires: i.Expires,
	}
	err := tx.QueryRow(ctx, `select t.name, u.name, now() from account.tenants t, account.users u
		where t.id = $1 and u.id = $2`, i.WorkspaceID, i.InviterID).
		Scan(&m.Data.Workspace, &m.Data.Person, &m.Data.At)
	if err != nil {
		return err
	}
	return s.mails.Add(ctx, tx, m)
}

// mailMember tells a user about a change of the user's membership, in the transaction of the change.
func (s *Store) mailMember(
	ctx context.Context,
	tx pgx.Tx,
	kind mail.Kind,
	workspaceID, user uuid.UUID,
	permissions perm.Set,
) error {
	if s.mails == nil {
		return nil
	}
	m := mail.Message{Kind: kind, Data: mail.Data{Permissions: titles(permissions)}}
	err := tx.QueryRow(ctx, `select name from account.tenants where id = $1`, workspaceID).Scan(&m.Data.Workspace)
	if err != nil {
		return err
	}
	return s.queueMail(ctx, tx, user, m)
}

// titles returns the titles of permissions, for people.
func titles(permissions perm.Set) (out []string) {
	for _, p := range permissions {
		if description, known := perm.Describe(p); known {
			out = append(out, description.Title)
		}
	}
	return out
}
