package postgres

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

// mailApproval tells the user about a new connection, in the transaction that stores it.
func (s *Store) mailApproval(ctx context.Context, tx pgx.Tx, g grant.Grant) error {
	if s.mails == nil {
		return nil
	}
	data, err := connectionData(ctx, tx, g.ClientID, g.WorkspaceID)
	if err != nil {
		return err
	}
	data.Permissions = titles(g.Permissions)
	return s.queueMail(ctx, tx, g.UserID, mail.Message{Kind: mail.ConnectionApproved, Data: data})
}

// revokeReplayed revokes a grant because of a replay, and tells its user. A grant that has already ended is not
// mentioned again; its end may still have to reach a synchronous standby, as in Revoke.
func (s *Store) revokeReplayed(ctx context.Context, revocation pgx.NamedArgs) error {
	return s.atomically(ctx, "revoke grant", func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, revokeSQL, revocation)
		if err == nil && tag.RowsAffected() == 0 {
			_, err = tx.Exec(ctx, confirmSQL)
			return err
		}
		if err != nil {
			return err
		}
		var user, client, workspaceID uuid.UUID
		err = tx.QueryRow(ctx, `select user_id, client_id, tenant_id from account.grants
			where tenant_id = @tenant and id = @id`,
			pgx.NamedArgs{"tenant": revocation["tenant"], "id": revocation["id"]}).Scan(&user, &client, &workspaceID)
		if err != nil {
			return err
		}
		data, err := connectionData(ctx, tx, client, workspaceID)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		return s.queueMail(ctx, tx, user, mail.Message{Kind: mail.ConnectionReplayed, Data: data})
	})
}
