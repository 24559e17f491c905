package postgres

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/spelling"
)

// InterruptedGrant returns the permissions of the last grant of a user to a client in a workspace whose code was
// redeemed, if it was ended in the last 90 days because a used code or refresh token was presented, and otherwise nil.
func (s *Store) InterruptedGrant(ctx context.Context, user, clientID, workspaceID uuid.UUID) (perm.Set, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	var interrupted bool
	var permissions []string
	err := s.pool.QueryRow(ctx, `
select g.ending is not null and g.revoked_at > now() - interval '90 days', g.permissions from account.grants g
where g.user_id = $1 and g.tenant_id = $3 and g.client_id = $2 and g.generation > 0
order by g.created_at desc limit 1`, user, clientID, workspaceID).Scan(&interrupted, &permissions)
	if errors.Is(err, pgx.ErrNoRows) || (err == nil && !interrupted) {
		return nil, nil
	}
	return perm.FromStrings(permissions), unavailable("read interrupted grant", err)
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
func (s *Store) ConnectedApps(ctx context.Context, user uuid.UUID) ([]consent.Connection, error) {
	return s.connections(ctx, "list connected apps", connectionsSQL+`
where g.user_id = $1 and g.state <> 'pending' and least(g.revoked_at, g.ends_at) > now() - interval '90 days'
  and (g.state = 'revoked' or `+notOverSQL+`)
order by g.created_at desc, g.id desc limit 500`, user)
}

// WorkspaceConnections lists the active grants of a workspace that the page selects, the latest first.
func (s *Store) WorkspaceConnections(
	ctx context.Context,
	workspaceID uuid.UUID,
	page consent.ConnectionPage,
) ([]consent.Connection, error) {
	return s.connections(ctx, "list connections of workspace", connectionsSQL+`
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
func (s *Store) EndConnection(
	ctx context.Context,
	workspaceID, id uuid.UUID,
	reason grant.Reason,
	event audit.Event,
) ([]grant.Grant, error) {
	var ended []grant.Grant
	err := s.administer(ctx, "end connection", func(tx pgx.Tx) error {
		err := stillAllowed(ctx, tx, event.Authorization)
		if err == nil {
			ended, err = revokeIn(ctx, tx, []uuid.UUID{workspaceID}, `g.id = @grant and g.state = 'active'`,
				pgx.NamedArgs{"grant": id}, reason, event.Actor)
		}
		return err
	})
	return ended, err
}

// LiveConnectors counts the active grants of connectors in a workspace, up to countAtMost.
func (s *Store) LiveConnectors(ctx context.Context, workspaceID uuid.UUID) (int, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	var count int
	err := s.pool.QueryRow(ctx, `select count(*) from (select g.id from account.grants g where g.tenant_id = $1
		and g.kind = $2 and g.state = 'active' and g.ends_at > now() and `+notOverSQL+`
		order by g.created_at desc, g.id desc limit $3) live`, workspaceID, client.Connector, countAtMost).Scan(&count)
	return count, unavailable("count connections of workspace", err)
}

func (s *Store) connections(ctx context.Context, op, query string, args ...any) ([]consent.Connection, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	rows, err := s.pool.Query(ctx, query, args...)
	if err != nil {
		return nil, unavailable(op, err)
	}
	found, err := pgx.CollectRows(rows, connectionOf)
	return found, unavailable(op, err)
}

func connectionOf(row pgx.CollectableRow) (consent.Connection, error) {
	var connection consent.Connection
	var r grantRow
	var held, redirects []string
	var document string
	err := row.Scan(
		append(
			[]any{
				&connection.Application,
				&connection.Workspace,
				&connection.NarrowedAt,
				&connection.Member,
				&held,
				&connection.LLMEnabled,
				&document,
				&redirects,
				&connection.Person,
				&connection.Email,
			},
			r.targets()...)...)
	if err == nil {
		connection.Held = perm.FromStrings(held)
		connection.Grant = *r.grant()
		connection.Home = consent.HomeOf(document, redirects)
	}
	return connection, err
}
