package postgres

import (
	"context"
	"errors"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
)

// ClientCopy reads the stored copy of a client's metadata document. It returns false if the document was
// never stored, and client.ErrNotServed if an operator has deleted the client; the deletion is permanent.
func (s *Store) ClientCopy(ctx context.Context, id uuid.UUID) (client.CachedClient, bool, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	var row clientRow
	var copied client.CachedClient
	var deleted bool
	err := s.pool.QueryRow(ctx, `select c.document_read_at, c.document_fresh_until, c.deleted_at is not null,
		`+clientFields+noSecrets+`
		from account.oauth_clients c where c.id = $1 and c.metadata_url is not null`, id).
		Scan(append([]any{&copied.FetchedAt, &copied.FreshUntil, &deleted}, row.targets()...)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return client.CachedClient{}, false, nil
	}
	if err != nil {
		return client.CachedClient{}, false, unavailable("read client copy", err)
	}
	if deleted {
		return client.CachedClient{}, false, client.ErrNotServed
	}
	copied.Client = *row.client()
	return copied, true, nil
}

// StoreClientCopy replaces the stored copy of a client's metadata document. It returns client.ErrNotServed if
// an operator has deleted the client, and a *client.DocumentError if Postgres rejects the keys as JSON.
func (s *Store) StoreClientCopy(ctx context.Context, c client.CachedClient) error {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	defer s.recent.Purge()
	tag, err := s.pool.Exec(ctx, `
insert into account.oauth_clients as c (id, kind, name, redirect_uris, required_permissions, connector_platform,
  resource, token_endpoint_auth_method, metadata_url, keys, keys_url, document_read_at, document_fresh_until)
values (@id, @kind, @name, @redirects, @required, nullif(@platform, ''), '', @auth, @address, @keys,
  nullif(@keys_url, ''), @read, @fresh)
on conflict (id) do update set name = excluded.name, redirect_uris = excluded.redirect_uris,
  required_permissions = excluded.required_permissions,
  connector_platform = `+platformSQL+`excluded.connector_platform end,
  token_endpoint_auth_method = excluded.token_endpoint_auth_method,
  keys = excluded.keys, keys_url = excluded.keys_url, document_read_at = excluded.document_read_at,
  document_fresh_until = excluded.document_fresh_until
where c.deleted_at is null and c.metadata_url = excluded.metadata_url`,
		pgx.NamedArgs{
			"id":        c.ID,
			"kind":      c.Kind,
			"name":      c.Name,
			"redirects": nonNil(c.Redirects),
			"required":  c.Required.Strings(),
			"platform":  c.Platform,
			"auth":      c.AuthMethod,
			"address":   c.Address,
			"keys":      c.Keys,
			"keys_url":  c.KeysURL,
			"read":      c.FetchedAt,
			"fresh":     c.FreshUntil,
		})
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok &&
		strings.HasPrefix(refused.Code, "22") { // class 22: data exception
		return &client.DocumentError{
			Message: "Its keys are not valid: they contain a character or a number that is not valid in a key.",
		}
	}
	if err != nil {
		return unavailable("store client copy", err)
	}
	if tag.RowsAffected() == 0 {
		return client.ErrNotServed
	}
	return nil
}

// platformSQL is the beginning of the new platform of a client c. While a connector policy is being applied, the client
// keeps its platform: with another one, grants that the policy has ended could be accepted again (P3).
const platformSQL = `case when exists (select from account.endings where days is not null) then c.connector_platform
  else `

// SetClientPlatform sets the connector platform of a client that has a metadata document; "" means none. It changes
// nothing while a connector policy is being applied.
func (s *Store) SetClientPlatform(ctx context.Context, id uuid.UUID, platform string) error {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	_, err := s.pool.Exec(
		ctx,
		`update account.oauth_clients c set connector_platform = `+platformSQL+`nullif($2, '') end where id = $1
			and metadata_url is not null`,
		id,
		platform,
	)
	return unavailable("set client platform", err)
}
