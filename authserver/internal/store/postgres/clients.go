package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
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

func (c *clientRow) targets() []any {
	return []any{&c.id, &c.kind, &c.workspaceID, &c.name, &c.redirects, &c.required, &c.platform, &c.resource, &c.auth,
		&c.createdBy, &c.created, &c.address, &c.keys, &c.keysURL, &c.secrets}
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
	scan := func(row pgx.CollectableRow) (client.Client, error) {
		var r clientRow
		if err := row.Scan(r.targets()...); err != nil {
			return client.Client{}, err
		}
		return *r.client(), nil
	}
	return list(ctx, s, "list clients", scan, `select `+clientFields+noSecrets+` from account.oauth_clients c
		where c.tenant_id = $1 and c.deleted_at is null order by c.created_at desc, c.id desc`, workspaceID)
}

// SaveClient registers a client with the hash of its first secret (none for a connector) and the audit event,
// in one transaction. It returns false if a client with this identifier already exists, or client.ErrTooMany.
func (s *Store) SaveClient(ctx context.Context, c client.Client, secretHash []byte, event audit.Event) (bool, error) {
	return s.changeIf(ctx, "register client", &event, func(tx pgx.Tx) error {
		saved, err := insertClient(ctx, tx, c, secretHash)
		if err == nil && !saved {
			err = errNoEvent
		}
		if err != nil {
			return err
		}
		var others int
		err = tx.QueryRow(ctx, `select count(*) from (select from account.oauth_clients
			where tenant_id = $1 and deleted_at is null and id <> $2 limit $3) c`,
			c.WorkspaceID, c.ID, client.MaxInWorkspace).Scan(&others)
		if err == nil && others == client.MaxInWorkspace {
			return client.ErrTooMany
		}
		return err
	})
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
on conflict (id) do nothing`, pgx.NamedArgs{"id": c.ID, "kind": c.Kind, "tenant": nullable(c.WorkspaceID),
		"name": c.Name, "redirects": nonNil(c.Redirects), "required": c.Required.Strings(), "platform": c.Platform,
		"resource": c.Resource, "auth": c.AuthMethod, "by": c.CreatedBy, "at": c.CreatedAt})
	if err != nil || tag.RowsAffected() == 0 || secretHash == nil {
		return err == nil && tag.RowsAffected() == 1, err
	}
	_, err = tx.Exec(ctx, `insert into account.client_secrets (client_id, hash) values ($1, $2)`, c.ID, secretHash)
	return err == nil, err
}

// DeleteClient deletes a client of the workspace, or for an operator any client, and ends its grants, durably and in
// one transaction. It returns those that it revoked so that the caller can update Redis, and whether EndNext revokes
// others; or client.ErrUnknown.
func (s *Store) DeleteClient(
	ctx context.Context, workspaceID, id uuid.UUID, event audit.Event,
) (ended useraccount.EndedCredentials, err error) {
	err = s.change(ctx, "delete client", &event, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `update account.oauth_clients set deleted_at = now() where id = $1
			and deleted_at is null and ($3 or tenant_id = $2) returning tenant_id`, id, workspaceID,
			event.Authorization.Operator).Scan(&event.WorkspaceID)
		if errors.Is(err, pgx.ErrNoRows) {
			return client.ErrUnknown
		}
		if err != nil {
			return err
		}
		workspaces := []uuid.UUID{}
		if event.WorkspaceID != nil {
			workspaces = append(workspaces, *event.WorkspaceID)
		} else if workspaces, err = workspacesOfClient(ctx, tx, id); err != nil {
			return err
		}
		e := ending{client: &id, reason: grant.ClientDeleted, actor: event.Actor}
		p, err := e.beginIn(ctx, tx, workspaces)
		ended = p.credentials()
		return err
	})
	return ended, err
}

// ReplaceSecret gives a confidential client of the workspace a new secret. The previous secret stays valid
// for overlap, but not longer than its own expiry; older secrets end at once, so that a client has at most
// two (contract, section 5). The client's row is locked first, so that this also holds for concurrent
// replacements.
func (s *Store) ReplaceSecret(
	ctx context.Context, workspaceID, id uuid.UUID, hash []byte, overlap time.Duration, event audit.Event,
) error {
	return s.change(ctx, "replace secret", &event, func(tx pgx.Tx) error {
		exists, err := found(tx.QueryRow(ctx, `select true from account.oauth_clients where id = $1
			and tenant_id is not distinct from $2 and deleted_at is null for update`, id, nullable(workspaceID)))
		if err == nil && !exists {
			err = client.ErrUnknown
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
		_, err = tx.Exec(ctx, `insert into account.client_secrets (client_id, hash) values ($1, $2)`, id, hash)
		return err
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

// ChangeClients creates and changes clients and records the events, in one transaction. It returns an *admin.Refusal if
// a new client has the id of a deleted one, if a client to change was deleted, or if a workspace does not exist.
func (s *Store) ChangeClients(ctx context.Context, changes []admin.ClientChange) error {
	return s.atomically(ctx, "change clients", func(tx pgx.Tx) error {
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
  and deleted_at is null`, pgx.NamedArgs{"id": c.ID, "kind": c.Kind, "tenant": nullable(c.WorkspaceID),
		"name": c.Name, "redirects": nonNil(c.Redirects), "required": c.Required.Strings(), "platform": c.Platform,
		"resource": c.Resource, "auth": c.AuthMethod})
	if err == nil && tag.RowsAffected() == 0 {
		return admin.ErrNoClient
	}
	return err
}

// EveryClient lists the clients of one workspace, or all clients if workspaceID is nil, newest first. It
// includes services.
func (s *Store) EveryClient(ctx context.Context, workspaceID *uuid.UUID) ([]admin.Client, error) {
	return listLong(ctx, s, "list clients", pgx.RowToStructByName[admin.Client], `
select c.id, c.kind, c.tenant_id as workspace_id, coalesce(t.name, '') as workspace, c.name,
  c.token_endpoint_auth_method as auth_method, c.created_at as created,
  (select count(*) from account.grants g where g.client_id = c.id and g.state = 'active' and g.ends_at > now()) grants
from account.oauth_clients c left join account.tenants t on t.id = c.tenant_id
where c.deleted_at is null and (@tenant::uuid is null or c.tenant_id = @tenant)
order by c.created_at desc, c.id desc`, pgx.NamedArgs{"tenant": workspaceID})
}

// workspacesOfClient returns the workspaces in which a client that belongs to none has grants that were not revoked, in
// the order in which transactions lock them.
func workspacesOfClient(ctx context.Context, tx pgx.Tx, id uuid.UUID) ([]uuid.UUID, error) {
	return collect(ctx, tx, pgx.RowTo[uuid.UUID], `select distinct g.tenant_id from account.grants g
		where g.client_id = $1 and g.state <> 'revoked' order by 1`, id)
}

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
where c.deleted_at is null and c.metadata_url = excluded.metadata_url`, pgx.NamedArgs{"id": c.ID,
		"kind": c.Kind, "name": c.Name, "redirects": nonNil(c.Redirects), "required": c.Required.Strings(),
		"platform": c.Platform, "auth": c.AuthMethod, "address": c.Address, "keys": c.Keys,
		"keys_url": c.KeysURL, "read": c.FetchedAt, "fresh": c.FreshUntil})
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
	_, err := s.pool.Exec(ctx,
		`update account.oauth_clients c set connector_platform = `+platformSQL+`nullif($2, '') end where id = $1
			and metadata_url is not null`, id, platform)
	return unavailable("set client platform", err)
}

// Limits of the cache of recent clients: the lifetime and the number of entries.
const (
	recentFor = time.Second
	maxRecent = 1024
)

// A recentClient is a client, or nil if there was none, as it was read from Postgres. Every transaction of this process
// may change a client and purges the cache; changes by other processes are visible after recentFor.
type recentClient struct {
	client *client.Client
	at     time.Time
}

// RecentClient is Client with its two newest live secrets, from a cache of up to one second. It is for
// requests that are refused in any case, so that garbage costs Postgres at most one read a second. Its result
// must not authorize anything.
func (s *Store) RecentClient(ctx context.Context, id uuid.UUID) (client.Client, error) {
	found, known := s.recent.Get(id)
	if !known || time.Since(found.at) >= recentFor {
		found = recentClient{at: time.Now()}
		read, err := s.readClient(ctx, recentClientSQL, id)
		if err != nil && !errors.Is(err, client.ErrUnknown) {
			return client.Client{}, err
		}
		if err == nil {
			found.client = &read
		}
		s.recent.Add(id, found)
	}
	if found.client == nil {
		return client.Client{}, client.ErrUnknown
	}
	return *found.client, nil
}
