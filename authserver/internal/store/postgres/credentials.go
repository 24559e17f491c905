package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// InterruptedGrant returns the permissions of the last grant of a user to a client in a workspace whose code was
// redeemed, if it was ended in the last 90 days because a used code or refresh token was presented, and otherwise nil.
func (g *Grants) InterruptedGrant(ctx context.Context, user, clientID, workspaceID uuid.UUID) (perm.Set, error) {
	permissions, _, err := one(ctx, g.db, "read interrupted grant", pgx.RowTo[perm.Set], `
select last.permissions from (
  select g.permissions, g.ending, g.revoked_at from account.grants g
  where g.user_id = $1 and g.tenant_id = $3 and g.client_id = $2 and g.generation > 0
  order by g.created_at desc limit 1) last
where last.ending is not null and last.revoked_at > now() - interval '90 days'`, user, clientID, workspaceID)
	return perm.NewSet(permissions...), err
}

// connectionColumns are the columns of connectionTargets, and connectionTables the tables that have them.
const (
	connectionColumns = `c.name, t.name, g.narrowed_at, m.user_id is not null, coalesce(m.permissions, '{}'),
  coalesce(f.enabled, false), coalesce(c.metadata_url, ''), c.redirect_uris, u.name, u.email, ` + grantColumns
	connectionTables = `
from account.grants g
join account.oauth_clients c on c.id = g.client_id
join account.tenants t on t.id = g.tenant_id
join account.users u on u.id = g.user_id
left join account.memberships m on m.tenant_id = g.tenant_id and m.user_id = g.user_id
left join account.tenant_features f on f.tenant_id = g.tenant_id and f.feature = 'llm_integration'
`
	connectionsSQL = `select ` + connectionColumns + connectionTables
)

// ConnectedApps lists a user's grants, the latest first: all active grants, and those that ended within the
// last 90 days. It omits a grant whose code was never redeemed, unless the grant has a revocation reason.
func (g *Grants) ConnectedApps(ctx context.Context, user uuid.UUID) ([]consent.Connection, error) {
	return list(ctx, g.db, "list connected apps", connectionOf, connectionsSQL+`
where g.user_id = $1 and g.state <> 'pending' and least(g.revoked_at, g.ends_at) > now() - interval '90 days'
  and (g.state = 'revoked' or `+notOverSQL+`)
order by g.created_at desc, g.id desc limit 500`, user)
}

// EndConnection revokes an active grant of a workspace if the event's authorization still holds. It returns the grant,
// or none if it is not active in this workspace.
func (g *Grants) EndConnection(
	ctx context.Context, workspaceID, id uuid.UUID, reason grant.Reason, event audit.Event,
) (ended []grant.Grant, err error) {
	err = g.change(ctx, "end connection", &event, func(tx *transaction) {
		ended = revokeIn(tx, []uuid.UUID{workspaceID}, `g.id = @grant and g.state = 'active'`,
			pgx.NamedArgs{"grant": id}, reason, event.Actor)
		tx.noEvent = true // revokeIn has recorded the end of the grant
	})
	return ended, err
}

// LiveConnections counts the active grants of a workspace, up to consent.MaxCounted.
func (g *Grants) LiveConnections(ctx context.Context, workspaceID uuid.UUID) (consent.ConnectionCount, error) {
	count, _, err := one(ctx, g.db, "count connections of workspace", pgx.RowToStructByPos[consent.ConnectionCount], `
select count(*) filter (where live.kind = $2), count(*) from (select g.kind from account.grants g
  where g.tenant_id = $1 and g.state = 'active' and g.ends_at > now() and `+notOverSQL+`
  order by g.created_at desc, g.id desc limit $3) live`, workspaceID, client.Connector, consent.MaxCounted)
	return count, err
}

func connectionOf(row pgx.CollectableRow) (consent.Connection, error) { return scanConnection(row) }

// scanConnection reads connectionColumns, and the columns after them into more.
func scanConnection(row pgx.CollectableRow, more ...any) (c consent.Connection, err error) {
	var redirects []string
	var document string
	targets := []any{&c.Application, &c.Workspace, &c.NarrowedAt, &c.Member, &c.Held, &c.LLMEnabled, &document,
		&redirects, &c.Person, &c.Email}
	err = row.Scan(append(append(targets, grantTargets(&c.Grant)...), more...)...)
	if err == nil {
		c.Held, c.Grant, c.Home = ordered(c.Held), *foundGrant(c.Grant), consent.HomeOf(document, redirects)
	}
	return c, err
}

// grantFilter is the SQL condition on grants g for an admin.GrantFilter.
const grantFilter = `(@user::uuid is null or g.user_id = @user) and (@client::uuid is null or g.client_id = @client)
  and (@tenant::uuid is null or g.tenant_id = @tenant) and (@before::timestamptz is null or g.created_at < @before)`

func grantFilterArgs(f admin.GrantFilter) pgx.NamedArgs {
	return pgx.NamedArgs{"user": f.User, "client": f.Client, "tenant": f.WorkspaceID, "before": f.IssuedBefore}
}

// EveryGrant lists the latest grants that match the filter, up to limit.
func (g *Grants) EveryGrant(ctx context.Context, filter admin.GrantFilter, limit int) ([]admin.Grant, error) {
	args := grantFilterArgs(filter)
	args["limit"] = limit
	return listLong(ctx, g.db, "list grants", pgx.RowToStructByName[admin.Grant], `
select g.id, g.kind, g.client_id, c.name as client, g.user_id, u.email, g.tenant_id as workspace_id, g.permissions,
  case when g.state <> 'revoked' and g.ends_at <= now() then 'ended by time' else g.state end as state,
  g.created_at as created, g.last_used_at as last_used, g.ends_at as ends, g.revoked_at,
  coalesce(g.revoke_reason, '') as reason
from account.grants g join account.oauth_clients c on c.id = g.client_id join account.users u on u.id = g.user_id
where `+grantFilter+` order by g.created_at desc, g.id desc limit @limit`, args)
}

// EndGrant revokes a grant with its event, or returns admin.ErrNoGrant. It returns false if it was revoked before.
func (g *Grants) EndGrant(
	ctx context.Context, id uuid.UUID, actor string,
) (found grant.Grant, revoked bool, err error) {
	err = g.atomically(ctx, "end grant", func(tx *transaction) {
		all := rowsOf(tx, scanGrant, `select `+grantColumns+` from account.grants g where g.id = $1`, id)
		if len(all) == 0 {
			tx.refuse(admin.ErrNoGrant)
			return
		}
		found = all[0]
		ended := revokeIn(tx, []uuid.UUID{found.WorkspaceID}, `g.id = @id`, pgx.NamedArgs{"id": id}, grant.ByAdmin,
			actor)
		if revoked = len(ended) == 1; revoked {
			found = ended[0]
		}
	})
	return found, revoked, err
}

// nextGrantsSQL reads the next grants that match the filter, including ended grants. If it skipped ended grants, it
// could read up to a million of them and exceed the statement timeout.
const nextGrantsSQL = `select g.tenant_id as workspace_id, g.id, g.state <> 'revoked' and g.ends_at > now() as live
  from account.grants g where (g.tenant_id, g.id) > (@after_tenant, @after) and ` + grantFilter + `
  order by g.tenant_id, g.id limit @at_once`

// EndGrants reads the next endAtOnce grants after a key that match the filter. It revokes those that have not ended and
// records an event for each. It returns the key of the last grant that it read, or the zero key if there was none.
func (g *Grants) EndGrants(
	ctx context.Context, filter admin.GrantFilter, after grant.Key, actor string,
) (ended []grant.Grant, next grant.Key, err error) {
	type read struct {
		grant.Key
		Live bool
	}
	err = g.atomically(ctx, "end grants", func(tx *transaction) {
		args := grantFilterArgs(filter)
		args["at_once"], args["after_tenant"], args["after"] = endAtOnce, after.WorkspaceID, after.ID
		var workspaces, ids []uuid.UUID
		for _, r := range rowsOf(tx, pgx.RowToStructByName[read], nextGrantsSQL, args) {
			next = r.Key
			if r.Live {
				workspaces, ids = append(workspaces, r.WorkspaceID), append(ids, r.ID)
			}
		}
		ended = revokeIn(tx, slices.Compact(workspaces), `g.id = any (@ids)`, pgx.NamedArgs{"ids": ids}, grant.ByAdmin,
			actor)
	})
	return ended, next, err
}

const tokenColumns = `p.id, p.user_id, p.tenant_id as workspace_id, p.name, p.permissions, p.created_at as created,
  p.expires_at as expires, p.revoked_at, coalesce(p.revoke_reason, '') as reason, u.used_at as last_used, p.replaces_id`

// tokenRows are the tokens p with their uses u.
const tokenRows = `account.personal_access_tokens p
  left join account.token_uses u on u.tenant_id = p.tenant_id and u.token_id = p.id`

// Tokens lists a user's personal access tokens of one workspace, newest first: all active tokens, and those
// that ended within the last 30 days.
func (g *Grants) Tokens(ctx context.Context, user, workspaceID uuid.UUID) ([]pat.Token, error) {
	scan := withPermissions(func(t *pat.Token) *perm.Set { return &t.Permissions })
	return list(ctx, g.db, "list tokens", scan, `select `+tokenColumns+` from `+tokenRows+`
		where p.user_id = $1 and p.tenant_id = $2 and least(p.revoked_at, p.expires_at) > now() - interval '30 days'
			and (p.revoked_at is not null or `+tokenNotEndingSQL+`)
		order by p.created_at desc, p.id desc limit 500`, user, workspaceID)
}

// ActiveTokens lists a user's active personal access tokens in every workspace, newest first.
func (g *Grants) ActiveTokens(ctx context.Context, user uuid.UUID) ([]pat.TokenInWorkspace, error) {
	scan := withPermissions(func(t *pat.TokenInWorkspace) *perm.Set { return &t.Permissions })
	return list(ctx, g.db, "list active tokens", scan, `
		select t.name as workspace, `+tokenColumns+` from `+tokenRows+`
		join account.tenants t on t.id = p.tenant_id
		where p.user_id = $1 and p.revoked_at is null and p.expires_at > now() and `+tokenNotEndingSQL+`
		order by p.created_at desc, p.id desc limit 500`, user)
}

// SaveToken stores a token with its audit event. It returns false if a token with its identifier already exists. A
// token that it replaces must still be active; otherwise the error is audit.ErrNotAuthorized.
func (g *Grants) SaveToken(ctx context.Context, t pat.Token, hash []byte, event audit.Event) (bool, error) {
	return g.changeIf(ctx, "save token", &event, func(tx *transaction) {
		if t.ReplacesID != nil {
			tx.require(tx.has(`select true from account.personal_access_tokens p
				where id = $1 and user_id = $2 and tenant_id = $3 and revoked_at is null and expires_at > now()
					and `+tokenNotEndingSQL+` for share of p`, *t.ReplacesID, t.UserID, t.WorkspaceID),
				audit.ErrNotAuthorized)
		}
		tx.change(`
insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions, expires_at, replaces_id)
values (@id, @hash, @user, @tenant, @name, @permissions, @expires, @replaces)
on conflict (id) do nothing`, pgx.NamedArgs{"id": t.ID, "hash": hash, "user": t.UserID, "tenant": t.WorkspaceID,
			"name": t.Name, "permissions": t.Permissions.Strings(), "expires": t.Expires, "replaces": t.ReplacesID})
	})
}

// RevokePresentedToken revokes the token with this hash for pat.ByHolder if it is active, completes the event and
// queues a mail to the owner of the token, in one transaction. It returns the token, in any state, or nil if there is
// none.
func (g *Grants) RevokePresentedToken(
	ctx context.Context, hash []byte, event audit.Event,
) (found *pat.Token, err error) {
	err = g.atomically(ctx, "revoke presented token", func(tx *transaction) {
		found = nil
		var token pat.Token
		var workspace string
		if !tx.row(`select p.id, p.user_id, p.tenant_id, p.name, t.name from account.personal_access_tokens p
			join account.tenants t on t.id = p.tenant_id where p.hash = $1`, hash).
			find(&token.ID, &token.UserID, &token.WorkspaceID, &token.Name, &workspace) {
			return
		}
		found = &token
		if tx.exec(`update account.personal_access_tokens set revoked_at = now(), revoke_reason = $2
			where id = $1 and revoked_at is null and expires_at > now()`, token.ID, pat.ByHolder) == 0 {
			return
		}
		one := event // the transaction may be repeated
		one.WorkspaceID, one.UserID, one.Subject = &token.WorkspaceID, &token.UserID, "token:"+token.ID.String()
		one.Detail = map[string]any{"name": token.Name, "reason": pat.ByHolder}
		tx.record(one)
		tx.mail(token.UserID, mail.TokenRevoked, mail.Data{Token: token.Name, Workspace: workspace})
	})
	return found, err
}

// RevokeToken revokes a token that is not revoked yet with its audit event, and tells its user by mail if another
// member revokes it. It returns false if there is no such token.
func (g *Grants) RevokeToken(ctx context.Context, t pat.Token, reason string, event audit.Event) (bool, error) {
	return g.changeIf(ctx, "revoke token", &event, func(tx *transaction) {
		tx.change(`update account.personal_access_tokens set revoked_at = now(), revoke_reason = $4
			where id = $1 and user_id = $2 and tenant_id = $3 and revoked_at is null`,
			t.ID, t.UserID, t.WorkspaceID, reason)
		if reason == pat.ByAdmin && !tx.noEvent && tx.sendsMail() {
			data := mail.Data{Token: t.Name, Workspace: tx.workspaceName(t.WorkspaceID)}
			tx.row(`select name from account.users where id = $1`, event.Authorization.UserID).read(&data.Person)
			tx.mail(t.UserID, mail.TokenRevoked, data)
		}
	})
}

// maxMailed is the maximum number of tokens in one transaction.
const maxMailed = 200

// expiringSQL marks active tokens that expire within 7 days, or within 1 day if they were created for about a week.
const expiringSQL = `
with expiring as (
  select id, now() as at from account.personal_access_tokens
  where expiry_mailed_at is null and revoked_at is null and expires_at > now()
    and expires_at <= now() + interval '7 days'
    and (expires_at <= now() + interval '1 day' or expires_at - created_at > interval '8 days')
  order by expires_at limit $1 for update skip locked
)
update account.personal_access_tokens p set expiry_mailed_at = expiring.at from expiring, account.tenants t
where p.id = expiring.id and t.id = p.tenant_id
returning p.user_id, p.name, t.name, p.expires_at`

// MailExpiringTokens queues a mail about each personal access token that is about to expire, once for each token. Users
// who are disabled or turned these mails off get none.
func (g *Grants) MailExpiringTokens(ctx context.Context) error {
	type expiring struct {
		User             uuid.UUID
		Token, Workspace string
		Ends             time.Time
	}
	for {
		var marked []expiring
		err := g.atomically(ctx, "mail expiring tokens", func(tx *transaction) {
			marked = rowsOf(tx, pgx.RowToStructByPos[expiring], expiringSQL, maxMailed)
			for _, e := range marked {
				tx.mailMessage(e.User, mail.Message{
					Kind:    mail.TokenExpiring,
					Data:    mail.Data{Token: e.Token, Workspace: e.Workspace, Ends: e.Ends},
					Expires: e.Ends, // after that, the mail would be wrong
				})
			}
		})
		if err != nil || len(marked) < maxMailed {
			return err
		}
	}
}

const selectKeys = `select kid, public_jwk as public, private_sealed as sealed, state, created_at as created,
  activated_at as activated, retired_at as retired
from account.signing_keys where state <> 'removed' order by created_at, kid`

// SigningKeys returns every key that is not removed.
func (g *Grants) SigningKeys(ctx context.Context) ([]keyring.StoredKey, error) {
	return list(ctx, g.db, "read signing keys", pgx.RowToStructByName[keyring.StoredKey], selectKeys)
}

// moveKey erases the private key when a key stops signing. @at is the start of the transaction.
const moveKey = `update account.signing_keys set state = @to,
  activated_at = case when @to = 'current' then @at else activated_at end,
  retired_at = case when @to = 'retired' then @at else retired_at end,
  private_sealed = case when @to in ('retired', 'removed') then '' else private_sealed end
where kid = @kid`

// ChangeSigningKeys calls decide with the current keys and applies its change with the events in one transaction. One
// process at a time can do so. It returns the error of decide unchanged; others wrap store.ErrUnavailable.
func (g *Grants) ChangeSigningKeys(ctx context.Context, decide keyring.Decision) error {
	return g.atomically(ctx, "change signing keys", func(tx *transaction) {
		var now time.Time
		tx.exec(`lock table account.signing_keys in share row exclusive mode`)
		have := rowsOf(tx, pgx.RowToStructByName[keyring.StoredKey], selectKeys)
		tx.row(`select now()`).read(&now)
		if tx.err != nil {
			return
		}
		change, err := decide(now, have)
		tx.require(err == nil, err)
		tx.changeKeys(change, now)
	})
}

func (t *transaction) changeKeys(change keyring.Change, now time.Time) {
	for _, move := range change.Moves {
		t.exec(moveKey, pgx.NamedArgs{"kid": move.KID, "to": string(move.To), "at": now})
	}
	for _, k := range change.Reseals {
		t.exec(`update account.signing_keys set private_sealed = $2 where kid = $1`, k.KID, k.Sealed)
	}
	for _, k := range change.Adds {
		t.exec(`insert into account.signing_keys (kid, public_jwk, private_sealed, state, activated_at)
			values ($1, $2, $3, $4, now() + case when $4 = 'current' then interval '0' end)`, k.KID, k.Public, k.Sealed,
			string(k.State))
	}
	for _, event := range change.Events {
		t.record(event)
	}
}
