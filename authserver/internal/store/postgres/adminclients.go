package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
)

// ChangeClients creates and changes clients and records the events, in one transaction. It returns an *admin.Refusal if
// a new client has the id of a deleted one, if a client to change was deleted, or if a workspace does not exist.
func (s *Store) ChangeClients(ctx context.Context, changes []admin.ClientChange) error {
	return s.administer(ctx, "change clients", func(tx pgx.Tx) error {
		for _, change := range changes {
			if err := changeClient(ctx, tx, change); err != nil {
				return err
			}
			if err := s.record(ctx, tx, change.Event); err != nil {
				return err
			}
		}
		return nil
	})
}

func changeClient(ctx context.Context, tx pgx.Tx, change admin.ClientChange) error {
	if !change.New {
		return updateClient(ctx, tx, change.Client)
	}
	saved, err := insertClient(ctx, tx, change.Client, change.SecretHash)
	if violates(err, foreignKeyViolation, "oauth_clients") {
		return admin.ErrNoWorkspace
	}
	if err == nil && !saved {
		return &admin.Refusal{
			Message: fmt.Sprintf("%s is the id of another or a deleted client: choose a new one", change.Client.ID),
		}
	}
	return err
}

func updateClient(ctx context.Context, tx pgx.Tx, c client.Client) error {
	tag, err := tx.Exec(ctx, `
update account.oauth_clients set name = @name, redirect_uris = @redirects, required_permissions = @required,
  connector_platform = nullif(@platform, ''), resource = nullif(@resource, ''), token_endpoint_auth_method = @auth
where id = @id and kind = @kind and tenant_id is not distinct from @tenant and metadata_url is null
  and deleted_at is null`,
		pgx.NamedArgs{
			"id":        c.ID,
			"kind":      c.Kind,
			"tenant":    nullable(c.WorkspaceID),
			"name":      c.Name,
			"redirects": nonNil(c.Redirects),
			"required":  c.Required.Strings(),
			"platform":  c.Platform,
			"resource":  c.Resource,
			"auth":      c.AuthMethod,
		})
	if err == nil && tag.RowsAffected() == 0 {
		return admin.ErrNoClient
	}
	return err
}
