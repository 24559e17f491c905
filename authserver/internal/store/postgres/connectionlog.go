package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/identity"
)

// keptAttempts is how many stopped attempts of a connector are stored: 50 of members and 50 anonymous ones,
// so that anonymous entries cannot evict members' entries.
const keptAttempts = 50

// RecordStopped inserts a stopped attempt, or updates the entry of this clock hour. An answer removes the
// entry of the consent page that waited for it. A user who is not a member of the workspace is recorded as
// anonymous.
func (l *Logs) RecordStopped(ctx context.Context, stopped connectionlog.StoppedAttempt) error {
	return l.atomically(ctx, "note stop", func(tx *transaction) {
		user := stopped.UserID
		if user != nil && !tx.has(`select true from account.memberships where tenant_id = $1 and user_id = $2`,
			stopped.WorkspaceID, *user) {
			user = nil
		}
		if user != nil && stopped.Outcome != connectionlog.Waiting {
			tx.answered(stopped.WorkspaceID, stopped.ClientID, *user)
		}
		args := pgx.NamedArgs{"id": identity.New(), "tenant": stopped.WorkspaceID, "client": stopped.ClientID,
			"user": user, "stray": stopped.Orphan, "outcome": string(stopped.Outcome),
			"reason": stopped.Reason, "request": stopped.RequestID, "keep": keptAttempts}
		tx.exec(`
insert into account.connection_stops (id, tenant_id, client_id, user_id, stray, outcome, reason, request_id)
values (@id, @tenant, @client, @user, @stray, @outcome, @reason, @request)
on conflict (tenant_id, client_id, coalesce(user_id, '00000000-0000-0000-0000-000000000000'), stray, reason,
  date_trunc('hour', at at time zone 'UTC'))
do update set at = excluded.at, request_id = excluded.request_id, outcome = excluded.outcome`, args)
		tx.exec(`
delete from account.connection_stops where tenant_id = @tenant and id in (select id from account.connection_stops
  where tenant_id = @tenant and client_id = @client and (user_id is null) = (@user::uuid is null)
  order by at desc, id desc offset @keep)`, args)
	})
}

// answered deletes the entry of a consent page that waits for the user's answer.
func (t *transaction) answered(workspaceID, client, user uuid.UUID) {
	t.exec(`delete from account.connection_stops where tenant_id = $1 and client_id = $2 and user_id = $3
		and outcome = 'waiting'`, workspaceID, client, user)
}

// attemptDetails reads attempts w of connectors c, with the names of their users. The query defines both.
const attemptDetails = `
select now(), c.id, c.name, c.platform, c.address, c.redirect_uris, c.deleted,
  w.id, w.at, coalesce(u.name, ''), coalesce(case when u.deleted_at is null then u.email end, ''),
  coalesce(w.stray, false), w.outcome, w.reason, coalesce(r.request_id, w.request),
  g.first_used_at, f.at, coalesce(f.words, ''), ` + grantColumns + `
from connectors c
left join attempts w on w.connector = c.id
left join account.users u on u.id = w.user_id and (w.stray is null
  or exists (select from account.memberships m where m.tenant_id = @tenant
  and m.user_id = w.user_id)) -- hide names of non-members
left join account.grants g on g.tenant_id = @tenant and g.id = w.id and w.stray is null
left join lateral (select e.at, e.detail ->> 'description' as words from account.audit_events e
  where e.tenant_id = @tenant and e.subject = 'grant:' || g.id and e.at >= g.created_at
    and e.action = '` + audit.GrantRefused + `' order by e.at desc limit 1) f on true
left join lateral (select e.request_id from account.audit_events e
  where e.tenant_id = @tenant and e.subject = 'grant:' || g.id and e.at >= g.created_at
    and e.request_id <> '' order by e.at desc limit 1) r on true`

// connectorsSQL reads connectors with their latest attempts: a stopped attempt, or a grant with its last refusal and
// its last known request ID.
const connectorsSQL = `
with known as (
  select c.id, c.name, coalesce(c.connector_platform, '') as platform, coalesce(c.metadata_url, '') as address,
  c.redirect_uris, c.deleted_at is not null as deleted
  from account.oauth_clients c
  where c.kind = 'connector' and (c.deleted_at is null or c.deleted_at > now() - interval '30 days')
    and (c.tenant_id = @tenant or exists (select from account.grants g where g.tenant_id = @tenant
    and g.client_id = c.id)
      or exists (select from account.connection_stops s where s.tenant_id = @tenant and s.client_id = c.id))
), attempts as (
  select c.id as connector, w.* from known c cross join lateral (
    (select g.id, g.created_at as at, g.user_id, null::boolean as stray, '' as outcome, '' as reason, '' as request
      from account.grants g where g.tenant_id = @tenant and g.client_id = c.id order by g.created_at desc limit 1)
    union all
    (select s.id, s.at, s.user_id, s.stray, s.outcome, s.reason, s.request_id
      from account.connection_stops s where s.tenant_id = @tenant and s.client_id = c.id order by s.at desc limit 1)
    order by at desc limit 1) w
), connectors as (
  select c.* from known c left join attempts w on w.connector = c.id
  order by w.at desc nulls last, c.name, c.id limit @limit offset @offset
)
` + attemptDetails + `
order by w.at desc nulls last, c.name, c.id`

// scanAttempt reads a row of attemptDetails. An attempt that an outer join did not find has no ID.
func scanAttempt(row pgx.CollectableRow) (connectionlog.Found, error) {
	var now time.Time
	var firstUsed, refusedAt *time.Time
	var last connectionlog.Refusal
	var g grant.Grant
	var found connectionlog.Found
	c, a := &found.Connector, &found.Attempt
	targets := []any{&now, &c.ID, &c.Name, &c.Platform, &c.Address, &c.Redirects, &c.Deleted, (*zeronull.UUID)(&a.ID),
		(*zeronull.Timestamptz)(&a.At), &a.Person, &a.Email, &a.Orphan, (*zeronull.Text)(&a.Outcome),
		(*zeronull.Text)(&a.Reason), (*zeronull.Text)(&a.RequestID), &firstUsed, &refusedAt, &last.Reason}
	if err := row.Scan(append(targets, grantTargets(&g)...)...); err != nil {
		return connectionlog.Found{}, err
	}
	a.Taken[connectionlog.Requested] = !a.Orphan
	if given := foundGrant(g); given != nil {
		var refusal *connectionlog.Refusal
		if refusedAt != nil {
			last.At, refusal = *refusedAt, &last
		}
		person, email, request := a.Person, a.Email, a.RequestID
		*a = connectionlog.OfGrant(*given, c.Name, firstUsed, refusal, now)
		a.Person, a.Email, a.RequestID = person, email, request
	}
	return found, nil
}

// Connectors reads connectors of a workspace with their latest attempts: up to limit connectors, after skipping offset.
// The connector with the latest attempt comes first.
func (l *Logs) Connectors(
	ctx context.Context, workspaceID uuid.UUID, offset, limit int,
) ([]connectionlog.Connector, error) {
	scan := func(row pgx.CollectableRow) (connectionlog.Connector, error) {
		found, err := scanAttempt(row)
		if found.Attempt.ID != uuid.Nil {
			found.Connector.Latest = &found.Attempt
		}
		return found.Connector, err
	}
	return listLong(ctx, l.db, "read connectors", scan, connectorsSQL,
		pgx.NamedArgs{"tenant": workspaceID, "offset": offset, "limit": limit})
}

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
func (l *Logs) SearchConnections(
	ctx context.Context, workspaceID uuid.UUID, search audit.Search, from audit.Cursor, limit int,
) ([]connectionlog.Found, error) {
	args := searchArgs(workspaceID, search, from, limit)
	args["tenant"] = workspaceID // in attemptDetails
	return listLong(ctx, l.db, "search connection log", scanAttempt, foundSQL(search, from), args)
}
