package postgres

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
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

// clientTargets are the targets of clientFields. A client that an outer join did not find has no ID.
func clientTargets(c *client.Client) []any {
	return []any{(*zeronull.UUID)(&c.ID), (*zeronull.Text)(&c.Kind), (*zeronull.UUID)(&c.WorkspaceID),
		(*zeronull.Text)(&c.Name), &c.Redirects, &c.Required, (*zeronull.Text)(&c.Platform),
		(*zeronull.Text)(&c.Resource), (*zeronull.Text)(&c.AuthMethod), &c.CreatedBy,
		(*zeronull.Timestamptz)(&c.CreatedAt), (*zeronull.Text)(&c.Address), &c.Keys, (*zeronull.Text)(&c.KeysURL),
		&c.Secrets}
}

// foundClient returns a client that was read into clientTargets, or nil if there was none.
func foundClient(c client.Client) *client.Client {
	if c.ID == uuid.Nil {
		return nil
	}
	c.Required = ordered(c.Required)
	return &c
}

const (
	clientSQL = `select ` + clientFields + noSecrets + ` from account.oauth_clients c where c.id = $1
		and c.deleted_at is null`
	recentClientSQL = `select ` + clientFields + newestSecrets + ` from account.oauth_clients c where c.id = $1
		and c.deleted_at is null`
	presentingClients = `select ` + presentingClient
	presentingClient  = clientFields + presentedSecret + ` from (select $1::uuid id, $2::bytea secret) asked
		join account.oauth_clients c on c.id = asked.id and c.deleted_at is null`
)

// Client reads a client without its secrets, or returns client.ErrUnknown.
func (c *Clients) Client(ctx context.Context, id uuid.UUID) (client.Client, error) {
	return need(ctx, c.db, "read client", client.ErrUnknown, scanClient, clientSQL, id)
}

// ClientWithSecret reads a client and the live secret with this hash, if any, or returns client.ErrUnknown.
func (c *Clients) ClientWithSecret(ctx context.Context, id uuid.UUID, secretHash []byte) (client.Client, error) {
	return need(ctx, c.db, "read client", client.ErrUnknown, scanClient, presentingClients, id, secretHash)
}

func scanClient(row pgx.CollectableRow) (c client.Client, err error) {
	err = row.Scan(clientTargets(&c)...)
	c.Required = ordered(c.Required)
	return c, err
}

// Clients lists the clients of a workspace without their secrets, newest first.
func (c *Clients) Clients(ctx context.Context, workspaceID uuid.UUID) ([]client.Client, error) {
	return list(ctx, c.db, "list clients", scanClient, `select `+clientFields+noSecrets+` from account.oauth_clients c
		where c.tenant_id = $1 and c.deleted_at is null order by c.created_at desc, c.id desc`, workspaceID)
}

// SaveClient registers a client with the hash of its first secret (none for a connector) and the audit event,
// in one transaction. It returns false if a client with this identifier already exists, or client.ErrTooMany.
func (c *Clients) SaveClient(
	ctx context.Context, registered client.Client, secretHash []byte, event audit.Event,
) (bool, error) {
	return c.changeIf(ctx, "register client", &event, func(tx *transaction) {
		if !tx.insertClient(registered, secretHash) {
			tx.noEvent = true
			return
		}
		tx.lock("applications of " + registered.WorkspaceID.String()) // counted one at a time
		var others int
		tx.row(`select count(*) from (select from account.oauth_clients
			where tenant_id = $1 and deleted_at is null and id <> $2 limit $3) c`,
			registered.WorkspaceID, registered.ID, client.MaxInWorkspace).read(&others)
		tx.require(others < client.MaxInWorkspace, client.ErrTooMany)
	})
}

// insertClient inserts a client with the hash of its first secret, if it has one, or returns false if its id exists.
func (t *transaction) insertClient(c client.Client, secretHash []byte) bool {
	inserted := t.exec(`
insert into account.oauth_clients (id, kind, tenant_id, name, redirect_uris, required_permissions, connector_platform,
  resource, token_endpoint_auth_method, created_by, created_at)
values (@id, @kind, @tenant, @name, @redirects, @required, nullif(@platform, ''), nullif(@resource, ''), @auth,
  @by, @at)
on conflict (id) do nothing`, clientArgs(c))
	if inserted == 1 && secretHash != nil {
		t.exec(`insert into account.client_secrets (client_id, hash) values ($1, $2)`, c.ID, secretHash)
	}
	return inserted == 1
}

// DeleteClient deletes a client of the workspace, or for an operator any client, and ends its grants, durably and in
// one transaction. It returns those that it revoked so that the caller can update Redis, and whether EndNext revokes
// others; or client.ErrUnknown.
func (c *Clients) DeleteClient(
	ctx context.Context, workspaceID, id uuid.UUID, event audit.Event,
) (ended useraccount.EndedCredentials, err error) {
	err = c.change(ctx, "delete client", &event, func(tx *transaction) {
		tx.require(tx.row(`update account.oauth_clients set deleted_at = now() where id = $1
			and deleted_at is null and ($3 or tenant_id = $2) returning tenant_id`, id, workspaceID,
			event.Authorization.Operator).find(&event.WorkspaceID), client.ErrUnknown)
		workspaces := []uuid.UUID{}
		if event.WorkspaceID != nil {
			workspaces = append(workspaces, *event.WorkspaceID)
		} else { // a client that belongs to none; in the order in which transactions lock them
			workspaces = rowsOf(tx, pgx.RowTo[uuid.UUID], `select distinct g.tenant_id from account.grants g
				where g.client_id = $1 and g.state <> 'revoked' order by 1`, id)
		}
		p := ending{client: &id, reason: grant.ClientDeleted, actor: event.Actor}.beginIn(tx, workspaces)
		ended = p.credentials()
	})
	return ended, err
}

// ReplaceSecret gives a confidential client of the workspace a new secret. The previous secret stays valid for overlap,
// but not longer than its own expiry; older secrets end at once, so that a client has at most two (contract, section
// 5). The client's row is locked first, so that this also holds for concurrent replacements.
func (c *Clients) ReplaceSecret(
	ctx context.Context, workspaceID, id uuid.UUID, hash []byte, overlap time.Duration, event audit.Event,
) error {
	return c.change(ctx, "replace secret", &event, func(tx *transaction) {
		tx.require(tx.has(`select true from account.oauth_clients where id = $1
			and tenant_id is not distinct from $2 and deleted_at is null for update`, id, nullable(workspaceID)),
			client.ErrUnknown)
		tx.exec(`delete from account.client_secrets where client_id = $1 and ($2::interval <= '0'
			or expires_at <= now()
			or hash <> (select s.hash from account.client_secrets s where s.client_id = $1
			order by `+secretOrder+` limit 1))`, id, overlap)
		tx.exec(`update account.client_secrets set expires_at = now() + $2
			where client_id = $1 and (expires_at is null or expires_at > now() + $2)`, id, overlap)
		tx.exec(`insert into account.client_secrets (client_id, hash) values ($1, $2)`, id, hash)
	})
}

// clientArgs are the values of a client's columns.
func clientArgs(c client.Client) pgx.NamedArgs {
	return pgx.NamedArgs{"id": c.ID, "kind": c.Kind, "tenant": nullable(c.WorkspaceID), "name": c.Name,
		"redirects": append([]string{}, c.Redirects...), "required": c.Required.Strings(), "platform": c.Platform,
		"resource": c.Resource, "auth": c.AuthMethod, "by": c.CreatedBy, "at": c.CreatedAt, "address": c.Address,
		"keys": c.Keys, "keys_url": c.KeysURL}
}

func nullable(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

// ChangeClients creates and changes clients and records the events, in one transaction. It returns an *admin.Refusal if
// a new client has the id of a deleted one, if a client to change was deleted, or if a workspace does not exist.
func (c *Clients) ChangeClients(ctx context.Context, changes []admin.ClientChange) error {
	return c.atomically(ctx, "change clients", func(tx *transaction) {
		for _, change := range changes {
			if change.New {
				added := tx.insertClient(change.Client, change.SecretHash)
				tx.violation(foreignKeyViolation, "oauth_clients", admin.ErrNoWorkspace)
				tx.require(added, &admin.Refusal{Message: change.Client.ID.String() +
					" is the id of another or a deleted client: choose a new one"})
			} else {
				tx.require(tx.exec(updateClientSQL, clientArgs(change.Client)) == 1, admin.ErrNoClient)
			}
			tx.record(change.Event)
		}
	})
}

const updateClientSQL = `
update account.oauth_clients set name = @name, redirect_uris = @redirects, required_permissions = @required,
  connector_platform = nullif(@platform, ''), resource = nullif(@resource, ''), token_endpoint_auth_method = @auth
where id = @id and kind = @kind and tenant_id is not distinct from @tenant and metadata_url is null
  and deleted_at is null`

// EveryClient lists the clients of one workspace, or all clients if workspaceID is nil, also services, newest first.
func (c *Clients) EveryClient(ctx context.Context, workspaceID *uuid.UUID) ([]admin.Client, error) {
	return listLong(ctx, c.db, "list clients", pgx.RowToStructByName[admin.Client], `
select c.id, c.kind, c.tenant_id as workspace_id, coalesce(t.name, '') as workspace, c.name,
  c.token_endpoint_auth_method as auth_method, c.created_at as created,
  (select count(*) from account.grants g where g.client_id = c.id and g.state = 'active' and g.ends_at > now()) grants
from account.oauth_clients c left join account.tenants t on t.id = c.tenant_id
where c.deleted_at is null and (@tenant::uuid is null or c.tenant_id = @tenant)
order by c.created_at desc, c.id desc`, pgx.NamedArgs{"tenant": workspaceID})
}

// ClientCopy reads the stored copy of a client's metadata document. It returns false if the document was
// never stored, and client.ErrNotServed if an operator has deleted the client; the deletion is permanent.
func (c *Clients) ClientCopy(ctx context.Context, id uuid.UUID) (client.CachedClient, bool, error) {
	deleted := false
	scan := func(row pgx.CollectableRow) (copied client.CachedClient, err error) {
		times := []any{&copied.FetchedAt, &copied.FreshUntil, &deleted}
		err = row.Scan(append(times, clientTargets(&copied.Client)...)...)
		copied.Client.Required = ordered(copied.Client.Required)
		return copied, err
	}
	copied, found, err := one(ctx, c.db, "read client copy", scan, `
select c.document_read_at, c.document_fresh_until, c.deleted_at is not null, `+clientFields+noSecrets+`
from account.oauth_clients c where c.id = $1 and c.metadata_url is not null`, id)
	if err == nil && deleted {
		return client.CachedClient{}, false, client.ErrNotServed
	}
	return copied, found, err
}

// StoreClientCopy replaces the stored copy of a client's metadata document. It returns client.ErrNotServed if
// an operator has deleted the client, and a *client.DocumentError if Postgres rejects the keys as JSON.
func (c *Clients) StoreClientCopy(ctx context.Context, copied client.CachedClient) error {
	defer c.recent.Purge()
	args := clientArgs(copied.Client)
	args["read"], args["fresh"] = copied.FetchedAt, copied.FreshUntil
	stored, err := c.exec(ctx, "store client copy", `
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
where c.deleted_at is null and c.metadata_url = excluded.metadata_url`, args)
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok &&
		strings.HasPrefix(refused.Code, "22") { // class 22: data exception
		return &client.DocumentError{
			Message: "Its keys are not valid: they contain a character or a number that is not valid in a key.",
		}
	}
	if err == nil && stored == 0 {
		err = client.ErrNotServed
	}
	return err
}

// platformSQL is the beginning of the new platform of a client c. While a connector policy is being applied, the client
// keeps its platform: with another one, grants that the policy has ended could be accepted again (P3).
const platformSQL = `case when exists (select from account.endings where days is not null) then c.connector_platform
  else `

// SetClientPlatform sets the connector platform of a client that has a metadata document; "" means none. It changes
// nothing while a connector policy is being applied.
func (c *Clients) SetClientPlatform(ctx context.Context, id uuid.UUID, platform string) error {
	_, err := c.exec(ctx, "set client platform", `update account.oauth_clients c
		set connector_platform = `+platformSQL+`nullif($2, '') end where id = $1 and metadata_url is not null`, id,
		platform)
	return err
}

// Limits of the cache of recent clients: the lifetime and the number of entries.
const (
	recentFor = time.Second
	maxRecent = 1024
)

// A recentClient is a client, or client.ErrUnknown, as it was read from Postgres. Every transaction of this process may
// change a client and purges the cache; changes by other processes are visible after recentFor.
type recentClient struct {
	client client.Client
	err    error
	at     time.Time
}

// RecentClient is Client with its two newest live secrets, from a cache of up to one second. It is for requests that
// are refused in any case, so that garbage costs Postgres at most one read a second. It must not authorize anything.
func (c *Clients) RecentClient(ctx context.Context, id uuid.UUID) (client.Client, error) {
	if found, known := c.recent.Get(id); known && time.Since(found.at) < recentFor {
		return found.client, found.err
	}
	at := time.Now()
	read, err := need(ctx, c.db, "read client", client.ErrUnknown, scanClient, recentClientSQL, id)
	if err == nil || errors.Is(err, client.ErrUnknown) {
		c.recent.Add(id, recentClient{read, err, at})
	}
	return read, err
}
