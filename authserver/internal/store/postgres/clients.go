package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/perm"
)

// clientFields are the columns of account.oauth_clients c. One of the expressions below follows them and
// selects which of the client's secrets to read.
const clientFields = `c.id, c.kind, c.tenant_id, c.name, c.redirect_uris, c.required_permissions, c.connector_platform,
  c.resource, c.token_endpoint_auth_method, c.created_by, c.created_at, c.metadata_url, c.keys, c.keys_url, `

// Expressions that select the hashes of a client's live secrets. A statement shared by many callers reads the
// presented secret only: one index lookup, however many secrets the client has.
const (
	noSecrets       = `null::bytea[]`
	presentedSecret = `(select array[s.hash] from account.client_secrets s
   where s.client_id = c.id and s.hash = asked.secret and (s.expires_at is null or s.expires_at > now()))`
	newestSecrets = `(select array_agg(newest.hash) from (select s.hash from account.client_secrets s
   where s.client_id = c.id and (s.expires_at is null or s.expires_at > now())
   order by ` + secretOrder + ` limit 2) newest)`

	// secretOrder sorts the current secret first, which has no expiry, and then the secret that it replaced.
	secretOrder = `s.expires_at desc nulls first, s.created_at desc`
)

// A clientRow is a client from an outer join, which may be absent.
type clientRow struct {
	id, workspaceID, createdBy           *uuid.UUID
	kind, name, platform, resource, auth *string
	redirects, required                  []string
	created                              *time.Time
	address, keysURL                     *string
	keys                                 []byte
	secrets                              [][]byte
}

func (r *clientRow) targets() []any {
	return []any{&r.id, &r.kind, &r.workspaceID, &r.name, &r.redirects, &r.required, &r.platform, &r.resource, &r.auth,
		&r.createdBy, &r.created, &r.address, &r.keys, &r.keysURL, &r.secrets}
}

func (r *clientRow) client() *client.Client {
	if r.id == nil {
		return nil
	}
	c := &client.Client{
		ID:         *r.id,
		Kind:       client.Kind(*r.kind),
		Name:       *r.name,
		Redirects:  r.redirects,
		Required:   perm.FromStrings(r.required),
		AuthMethod: client.AuthMethod(*r.auth),
		CreatedBy:  r.createdBy,
		CreatedAt:  *r.created,
		Secrets:    r.secrets,
		Platform:   text(r.platform),
		Resource:   text(r.resource),
		Address:    text(r.address),
		Keys:       r.keys,
		KeysURL:    text(r.keysURL),
	}
	if r.workspaceID != nil {
		c.WorkspaceID = *r.workspaceID
	}
	return c
}

func text(column *string) string {
	if column == nil {
		return ""
	}
	return *column
}

const (
	clientSQL = `select ` + clientFields + noSecrets + ` from account.oauth_clients c where c.id = $1
		and c.deleted_at is null`
	recentClientSQL = `select ` + clientFields + newestSecrets + ` from account.oauth_clients c where c.id = $1
		and c.deleted_at is null`
	presentingClients = `select ` + clientFields + presentedSecret + ` from (select $1::uuid id, $2::bytea secret) asked
		join account.oauth_clients c on c.id = asked.id and c.deleted_at is null`
)

// Client reads a client without its secrets, or returns client.ErrUnknown.
func (s *Store) Client(ctx context.Context, id uuid.UUID) (client.Client, error) {
	return s.readClient(ctx, clientSQL, id)
}

// ClientWithSecret reads a client and the live secret with this hash, if any, or returns client.ErrUnknown.
func (s *Store) ClientWithSecret(ctx context.Context, id uuid.UUID, secretHash []byte) (client.Client, error) {
	return s.readClient(ctx, presentingClients, id, secretHash)
}

func (s *Store) readClient(ctx context.Context, sql string, args ...any) (client.Client, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	var row clientRow
	err := s.reader(ctx).QueryRow(ctx, sql, args...).Scan(row.targets()...)
	if errors.Is(err, pgx.ErrNoRows) {
		return client.Client{}, client.ErrUnknown
	}
	if err != nil {
		return client.Client{}, unavailable("read client", err)
	}
	return *row.client(), nil
}

// Clients lists the clients of a workspace without their secrets, newest first.
func (s *Store) Clients(ctx context.Context, workspaceID uuid.UUID) ([]client.Client, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	rows, err := s.pool.Query(ctx, `select `+clientFields+noSecrets+` from account.oauth_clients c
		where c.tenant_id = $1 and c.deleted_at is null order by c.created_at desc, c.id desc`, workspaceID)
	if err != nil {
		return nil, unavailable("list clients", err)
	}
	clients, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (client.Client, error) {
		var r clientRow
		if err := row.Scan(r.targets()...); err != nil {
			return client.Client{}, err
		}
		return *r.client(), nil
	})
	return clients, unavailable("list clients", err)
}

// SaveClient registers a client with the hash of its first secret (none for a connector) and the audit event,
// in one transaction. It returns false if a client with this identifier already exists, or client.ErrTooMany.
func (s *Store) SaveClient(ctx context.Context, c client.Client, secretHash []byte, event audit.Event) (bool, error) {
	saved := false
	err := s.atomically(ctx, "register client", func(tx pgx.Tx) error {
		saved = false
		if err := stillAllowed(ctx, tx, event.Authorization); err != nil {
			return err
		}
		var err error
		if saved, err = insertClient(ctx, tx, c, secretHash); err != nil || !saved {
			return err
		}
		var others int
		if err := tx.QueryRow(ctx, `select count(*) from (select from account.oauth_clients
			where tenant_id = $1 and deleted_at is null and id <> $2 limit $3) c`,
			c.WorkspaceID, c.ID, client.MaxInWorkspace).Scan(&others); err != nil {
			return err
		}
		if others == client.MaxInWorkspace {
			return client.ErrTooMany
		}
		return s.record(ctx, tx, event)
	})
	return saved && err == nil, err
}

// insertClient inserts a client with the hash of its first secret, if it has one. It returns false if a client with
// this identifier already exists.
func insertClient(ctx context.Context, tx pgx.Tx, c client.Client, secretHash []byte) (bool, error) {
	tag, err := tx.Exec(ctx, `
insert into account.oauth_clients (id, kind, tenant_id, name, redirect_uris, required_permissions, connector_platform,
  resource,
  token_endpoint_auth_method, created_by, created_at)
values (@id, @kind, @tenant, @name, @redirects, @required, nullif(@platform, ''), nullif(@resource, ''), @auth,
  @by, @at)
on conflict (id) do nothing`,
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
			"by":        c.CreatedBy,
			"at":        c.CreatedAt,
		})
	if err != nil || tag.RowsAffected() == 0 || secretHash == nil {
		return err == nil && tag.RowsAffected() == 1, err
	}
	_, err = tx.Exec(ctx, `insert into account.client_secrets (client_id, hash) values ($1, $2)`, c.ID, secretHash)
	return err == nil, err
}

// DeleteClient deletes a client of the workspace and ends its grants, durably and in one transaction. It returns those
// that it revoked so that the caller can update Redis; EndNext revokes the others.
func (s *Store) DeleteClient(ctx context.Context, workspaceID, id uuid.UUID, event audit.Event) ([]grant.Grant, error) {
	var ended []grant.Grant
	err := s.atomically(ctx, "delete client", func(tx pgx.Tx) error {
		if err := stillAllowed(ctx, tx, event.Authorization); err != nil {
			return err
		}
		tag, err := tx.Exec(
			ctx,
			`update account.oauth_clients set deleted_at = now() where id = $1 and tenant_id = $2
				and deleted_at is null`,
			id,
			workspaceID,
		)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return client.ErrUnknown
		}
		p, err := ending{
			workspaceID: workspaceID,
			client:      &id,
			reason:      grant.ClientDeleted,
			actor:       event.Actor,
		}.begin(ctx, tx, endAtOnce)
		if err != nil {
			return err
		}
		ended = p.ended
		return s.record(ctx, tx, event)
	})
	return ended, err
}

// ReplaceSecret gives a confidential client of the workspace a new secret. The previous secret stays valid
// for overlap, but not longer than its own expiry; older secrets end at once, so that a client has at most
// two (contract, section 5). The client's row is locked first, so that this also holds for concurrent
// replacements.
func (s *Store) ReplaceSecret(
	ctx context.Context,
	workspaceID, id uuid.UUID,
	hash []byte,
	overlap time.Duration,
	event audit.Event,
) error {
	return s.atomically(ctx, "replace secret", func(tx pgx.Tx) error {
		if err := stillAllowed(ctx, tx, event.Authorization); err != nil {
			return err
		}
		var kind string
		err := tx.QueryRow(ctx, `select kind from account.oauth_clients where id = $1
			and tenant_id is not distinct from $2
			and deleted_at is null for update`, id, nullable(workspaceID)).
			Scan(&kind)
		if errors.Is(err, pgx.ErrNoRows) {
			return client.ErrUnknown
		}
		if err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, `delete from account.client_secrets where client_id = $1 and ($2::interval <= '0'
			or expires_at <= now()
			or hash <> (select s.hash from account.client_secrets s where s.client_id = $1
			order by `+secretOrder+` limit 1))`, id, overlap); err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, `update account.client_secrets set expires_at = now() + $2
			where client_id = $1 and (expires_at is null or expires_at > now() + $2)`, id, overlap); err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, `insert into account.client_secrets (client_id, hash)
			values ($1, $2)`, id, hash); err != nil {
			return err
		}
		return s.record(ctx, tx, event)
	})
}

func nullable(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

func nonNil(texts []string) []string {
	if texts == nil {
		return []string{}
	}
	return texts
}
