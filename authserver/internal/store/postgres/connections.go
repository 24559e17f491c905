package postgres

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
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

// connectionsSQL selects the columns of connectionOf.
const connectionsSQL = `
select c.name, t.name, g.narrowed_at, m.user_id is not null, coalesce(m.permissions, '{}'),
  coalesce(f.enabled, false), coalesce(c.metadata_url, ''), c.redirect_uris, u.name, u.email, ` + grantColumns + `
from account.grants g
join account.oauth_clients c on c.id = g.client_id
join account.tenants t on t.id = g.tenant_id
join account.users u on u.id = g.user_id
left join account.memberships m on m.tenant_id = g.tenant_id and m.user_id = g.user_id
left join account.tenant_features f on f.tenant_id = g.tenant_id and f.feature = 'llm_integration'
`

// ConnectedApps lists a user's grants, the latest first: all active grants, and those that ended within the
// last 90 days. It omits a grant whose code was never redeemed, unless the grant has a revocation reason.
func (g *Grants) ConnectedApps(ctx context.Context, user uuid.UUID) ([]consent.Connection, error) {
	return list(ctx, g.db, "list connected apps", connectionOf, connectionsSQL+`
where g.user_id = $1 and g.state <> 'pending' and least(g.revoked_at, g.ends_at) > now() - interval '90 days'
  and (g.state = 'revoked' or `+notOverSQL+`)
order by g.created_at desc, g.id desc limit 500`, user)
}

// WorkspaceConnections lists the active grants of a workspace that the page selects, the latest first.
func (g *Grants) WorkspaceConnections(
	ctx context.Context, workspaceID uuid.UUID, page consent.ConnectionPage,
) ([]consent.Connection, error) {
	return list(ctx, g.db, "list connections of workspace", connectionOf, connectionsSQL+`
where g.tenant_id = $1 and g.state = 'active' and g.ends_at > now() and ($2::uuid is null or g.id = $2)
  and `+notOverSQL+`
  and ($3::uuid is null or (g.created_at, g.id) <
    (select before.created_at, before.id from account.grants before where before.id = $3 and before.tenant_id = $1))
  and ($5 = '' or strpos(lower(c.name || ' ' || u.name || ' ' || u.email), lower($5)) > 0)
order by g.created_at desc, g.id desc limit $4`, workspaceID, page.Only, page.Before, page.Limit,
		spelling.Search(page.Words))
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
	if err != nil {
		return nil, err
	}
	return ended, nil
}

// LiveConnectors counts the active grants of connectors in a workspace, up to countAtMost.
func (g *Grants) LiveConnectors(ctx context.Context, workspaceID uuid.UUID) (count int, err error) {
	count, _, err = one(ctx, g.db, "count connections of workspace", pgx.RowTo[int], `
select count(*) from (select g.id from account.grants g where g.tenant_id = $1
  and g.kind = $2 and g.state = 'active' and g.ends_at > now() and `+notOverSQL+`
  order by g.created_at desc, g.id desc limit $3) live`, workspaceID, client.Connector, countAtMost)
	return count, err
}

func connectionOf(row pgx.CollectableRow) (c consent.Connection, err error) {
	var redirects []string
	var document string
	err = row.Scan(append([]any{&c.Application, &c.Workspace, &c.NarrowedAt, &c.Member, &c.Held, &c.LLMEnabled,
		&document, &redirects, &c.Person, &c.Email}, grantTargets(&c.Grant)...)...)
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

// EndGrant revokes a grant with its event, or returns admin.ErrNoGrant. It returns false if the grant was
// already revoked.
func (g *Grants) EndGrant(
	ctx context.Context, id uuid.UUID, actor string,
) (found grant.Grant, revoked bool, err error) {
	err = g.atomically(ctx, "end grant", func(tx *transaction) {
		all := rowsOf(tx, scanGrant, `select `+grantColumns+` from account.grants g where g.id = $1`, id)
		if len(all) == 0 {
			tx.fail(admin.ErrNoGrant)
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
