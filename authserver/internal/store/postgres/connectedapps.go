package postgres

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/shared/perm"
)

// InterruptedGrant returns the permissions of the last grant of a user to a client in a workspace, if it was ended in
// the last 90 days because a used code or refresh token was presented, and otherwise nil.
func (s *Store) InterruptedGrant(ctx context.Context, user, clientID, workspaceID uuid.UUID) (perm.Set, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	var interrupted bool
	var permissions []string
	err := s.pool.QueryRow(ctx, `
select g.ending is not null and g.revoked_at > now() - interval '90 days', g.permissions from account.grants g
where g.user_id = $1 and g.tenant_id = $3 and g.client_id = $2 and g.state <> 'pending'
order by g.created_at desc limit 1`, user, clientID, workspaceID).Scan(&interrupted, &permissions)
	if errors.Is(err, pgx.ErrNoRows) || (err == nil && !interrupted) {
		return nil, nil
	}
	return perm.FromStrings(permissions), unavailable("read interrupted grant", err)
}

// ConnectedApps lists a user's grants, the latest first: all active grants, and those that ended within the
// last 90 days. It omits a grant whose code was never redeemed, unless the grant has a revocation reason.
func (s *Store) ConnectedApps(ctx context.Context, user uuid.UUID) ([]consent.Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, `
select c.name, t.name, g.narrowed_at, m.user_id is not null, coalesce(m.permissions, '{}'),
  coalesce(f.enabled, false), coalesce(c.metadata_url, ''), c.redirect_uris, `+grantColumns+`
from account.grants g
join account.oauth_clients c on c.id = g.client_id
join account.tenants t on t.id = g.tenant_id
left join account.memberships m on m.tenant_id = g.tenant_id and m.user_id = g.user_id
left join account.tenant_features f on f.tenant_id = g.tenant_id and f.feature = 'llm_integration'
where g.user_id = $1 and g.state <> 'pending' and least(g.revoked_at, g.ends_at) > now() - interval '90 days'
order by g.created_at desc, g.id desc limit 500`, user)
	if err != nil {
		return nil, unavailable("list connected apps", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (consent.Connection, error) {
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
				},
				r.targets()...)...)
		if err == nil {
			connection.Held = perm.FromStrings(held)
			connection.Grant = *r.grant()
			connection.Home = consent.HomeOf(document, redirects)
		}
		return connection, err
	})
	return found, unavailable("list connected apps", err)
}
