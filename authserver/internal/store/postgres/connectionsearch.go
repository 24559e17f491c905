package postgres

import (
	"context"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
)

// foundSQL selects the attempts of a workspace that a search names, the latest first. The statement contains only the
// conditions that the search has. A search by person finds no user whose name the log hides.
func foundSQL(search audit.Search, from audit.Cursor) string {
	grants, stops := strings.Builder{}, strings.Builder{}
	clients := `select k.id from account.oauth_clients k where k.kind = 'connector'`
	if search.Application != "" {
		clients += ` and k.id in (` + applicationsSQL + `)`
	}
	if search.Client != uuid.Nil {
		clients += ` and k.id = @client`
	}
	grants.WriteString(`select g.client_id as connector, g.id, g.created_at as at, g.user_id, null::boolean as stray,
    '' as outcome, '' as reason, '' as request
  from account.grants g where g.tenant_id = @of and g.client_id in (` + clients + `)`)
	stops.WriteString(`select s.client_id, s.id, s.at, s.user_id, s.stray, s.outcome, s.reason, s.request_id
  from account.connection_stops s where s.tenant_id = @of and s.client_id in (` + clients + `)`)
	if search.RequestID != "" {
		grants.WriteString(` and g.id in (select substr(e.subject, 7)::uuid from account.audit_events e
      where e.tenant_id = @of and e.request_id = @request and e.request_id <> ''
        and e.subject ~ ('^grant:' || ` + strings.Replace(isUUID, "^", "", 1) + `))`)
		stops.WriteString(` and s.request_id = @request`)
	}
	if search.Person != "" {
		grants.WriteString(` and g.user_id in (` + peopleSQL + `)`)
		stops.WriteString(` and s.user_id in (` + peopleSQL + `) and exists (select from account.memberships m
      where m.tenant_id = @of and m.user_id = s.user_id)`)
	}
	grants.WriteString(between("g.created_at", search) + before("(g.created_at, g.id)", from))
	stops.WriteString(between("s.at", search) + before("(s.at, s.id)", from))
	return `
with attempts as (
  (` + grants.String() + ` order by g.created_at desc, g.id desc limit @limit)
  union all
  (` + stops.String() + ` order by s.at desc, s.id desc limit @limit)
  order by at desc, id desc limit @limit
), connectors as (
  select c.id, c.name, coalesce(c.connector_platform, '') as platform, coalesce(c.metadata_url, '') as address,
    c.redirect_uris, c.deleted_at is not null as deleted
  from account.oauth_clients c where c.id in (select connector from attempts)
)` + attemptDetails + `
order by w.at desc, w.id desc`
}

// SearchConnections reads the attempts of all connectors of a workspace that a search names, backwards from a cursor.
func (s *Store) SearchConnections(
	ctx context.Context,
	workspaceID uuid.UUID,
	search audit.Search,
	from audit.Cursor,
	limit int,
) ([]connectionlog.Found, error) {
	args := searchArgs(workspaceID, search, from, limit)
	args["tenant"] = workspaceID // in attemptDetails
	return listed(ctx, s, "search connection log", foundSQL(search, from), args,
		func(row pgx.CollectableRow) (connectionlog.Found, error) {
			var r attemptRow
			if err := row.Scan(r.targets()...); err != nil {
				return connectionlog.Found{}, err
			}
			return connectionlog.Found{Connector: r.connector, Attempt: r.attempt()}, nil
		})
}
