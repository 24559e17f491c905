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
	"github.com/almonerhq/almoner/shared/contract/spelling"
)

const insertEvent = `
insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, detail, request_id)
values (@id, @tenant, @user, @actor, @action, @subject, @detail, @request)`

func eventArgs(e audit.Event) pgx.NamedArgs {
	detail := e.Detail
	if detail == nil {
		detail = map[string]any{}
	}
	var workspaceID uuid.UUID // the nil UUID outside workspaces
	if e.WorkspaceID != nil {
		workspaceID = *e.WorkspaceID
	}
	return pgx.NamedArgs{"id": uuid.Must(uuid.NewV7()), "tenant": workspaceID, "user": e.UserID, "actor": e.Actor,
		"action": e.Action, "subject": e.Subject, "detail": detail, "request": e.RequestID}
}

// Record appends a single event. The event of a change is written in the transaction of that change.
func (l *Logs) Record(ctx context.Context, e audit.Event) error {
	_, err := l.exec(ctx, "record event", insertEvent, eventArgs(e))
	return err
}

// RecordRefusal appends a grant.refused event, unless this clock hour already has one for the same grant and reason.
func (l *Logs) RecordRefusal(ctx context.Context, e audit.Event) error {
	_, err := l.exec(ctx, "record refusal", insertEvent+` on conflict do nothing`, eventArgs(e))
	return err
}

// isUUID guards a cast: a malformed text in the log must not hide the other events.
const isUUID = `'^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'`

// clientOf is the client that an event e concerns, as text, or null.
const clientOf = `case when e.subject like 'client:%' then substr(e.subject, 8) else e.detail ->> 'client_id' end`

// namedSQL and namesSQL enclose a statement that selects events, and add the names of the user, the client and the
// actor.
const namedSQL = `
select e.id, e.at, nullif(e.tenant_id, '00000000-0000-0000-0000-000000000000') as workspace_id, e.user_id, e.actor,
  e.action, e.subject, e.detail, e.request_id,
  coalesce(u.name, '') as person, coalesce(c.name, '') as application, coalesce(a.name, '') as actor_name
from (`

const namesSQL = `) e
cross join lateral (select ` + clientOf + ` as client,
  case when e.actor like 'user:%' then substr(e.actor, 6) end as actor) named
left join account.users u on u.id = e.user_id
left join account.users a on a.id = case when named.actor ~ ` + isUUID + ` then named.actor::uuid end
left join account.oauth_clients c on c.id = case when named.client ~ ` + isUUID + ` then named.client::uuid end
order by e.at desc, e.id desc`

// peopleSQL and applicationsSQL select the users and applications that a search names. A search finds members by parts
// of their names and addresses, and other users only by their whole e-mail address, so that it does not read all users.
// anyApplication is whether the workspace may have one: of its own, or of a metadata document, which belongs to none.
const (
	peopleSQL = `with people as materialized (
		select p.id from account.memberships y join account.users p on p.id = y.user_id
		where y.tenant_id = @of and strpos(lower(p.name || ' ' || p.email), lower(@person)) > 0
		union all select p.id from account.users p where p.email = any(@addresses))`
	anyApplication = `exists (` + applicationsSQL + ` and n.id in (` + ownClientsSQL + `
    select o.id from account.oauth_clients o where o.metadata_url is not null))`
	// ownClientsSQL selects the clients of the workspace @tenant, each by an index. Others follow.
	ownClientsSQL = `select o.id from account.oauth_clients o where o.tenant_id = @tenant and o.deleted_at is null
    union all
    select o.id from account.oauth_clients o where o.tenant_id = @tenant and o.deleted_at is not null
    union all`
	applicationsSQL = `select n.id from account.oauth_clients n where strpos(lower(n.name), lower(@application)) > 0`
)

// eventsSQL selects the latest events for which the condition of holds. The statement contains only the conditions
// that the search has, so that each statement has its own plan. It reads no event if nothing has the name.
func eventsSQL(of string, search audit.Search, from audit.Cursor) string {
	text := ` select * from account.audit_events e where ` + of
	if search.RequestID != "" {
		text += ` and e.request_id = @request and e.request_id <> ''`
	}
	if search.Person != "" {
		text = peopleSQL + text + ` and exists (select from people) and (e.user_id in (select id from people)
			or e.actor in (select 'user:' || id from people))`
	}
	if search.Application != "" {
		text += ` and ` + anyApplication + ` and ` + clientOf + ` in (
			select id::text from (` + applicationsSQL + `) as named)`
	}
	if search.Kind != "" {
		text += ` and e.action = any(@actions)`
	}
	if search.Client != uuid.Nil {
		text += ` and ` + clientOf + ` = @client::uuid::text`
	}
	if search.User != uuid.Nil {
		text += ` and e.user_id = @user`
	}
	if search.Action != "" {
		text += ` and e.action = @action`
	}
	if search.Reason != "" {
		text += ` and e.detail ->> 'reason' = @reason`
	}
	text += between("e.at", search) + before("(e.at, e.id)", from)
	return text + ` order by e.at desc, e.id desc limit @limit`
}

// between returns the condition that a time is in the period of a search.
func between(at string, search audit.Search) string {
	text := ""
	if !search.Since.IsZero() {
		text += ` and ` + at + ` >= @since`
	}
	if !search.Until.IsZero() {
		text += ` and ` + at + ` < @until`
	}
	return text
}

// before returns the condition that a position is older than the cursor. Logs are read newest first.
func before(position string, from audit.Cursor) string {
	if from == (audit.Cursor{}) {
		return ""
	}
	return ` and ` + position + ` < (@at, @id)`
}

// searchArgs returns the arguments of these conditions.
func searchArgs(of uuid.UUID, search audit.Search, from audit.Cursor, limit int) pgx.NamedArgs {
	return pgx.NamedArgs{"of": of, "tenant": of, "at": from.At, "id": from.ID, "limit": limit,
		"request": search.RequestID,
		"person":  spelling.Search(search.Person), "addresses": spelling.Spellings(search.Person),
		"application": search.Application, "actions": audit.ActionsOf(search.Kind), "client": search.Client,
		"user": search.User, "action": search.Action, "reason": search.Reason,
		"since": search.Since, "until": search.Until}
}

// EventsOfWorkspace reads the audit log of a workspace backwards from a cursor.
func (l *Logs) EventsOfWorkspace(
	ctx context.Context, workspaceID uuid.UUID, search audit.Search, from audit.Cursor, limit int,
) ([]audit.Entry, error) {
	return l.entries(ctx, `e.tenant_id = @of`, workspaceID, search, from, limit)
}

// EventsOfUser reads the events that concern a user, inside and outside workspaces, backwards from a cursor.
func (l *Logs) EventsOfUser(
	ctx context.Context, user uuid.UUID, from audit.Cursor, limit int,
) ([]audit.Entry, error) {
	return l.entries(ctx, `e.user_id = @of`, user, audit.Search{}, from, limit)
}

// entries reads the latest month and the month before it, which are two partitions. It reads older events only if these
// months have too few.
func (l *Logs) entries(
	ctx context.Context, of string, id uuid.UUID, search audit.Search, from audit.Cursor, limit int,
) ([]audit.Entry, error) {
	ctx, cancel := l.withOperationLimit(ctx)
	defer cancel()
	args := searchArgs(id, search, from, limit)
	args["recent"] = recentMonths(from.At, search.Until)
	read := func(months string) ([]audit.Entry, error) {
		text := namedSQL + eventsSQL(of+months, search, from) + namesSQL
		return collect(ctx, l.pool, pgx.RowToStructByNameLax[audit.Entry], text, args)
	}
	found, err := read(` and e.at >= @recent`)
	if err == nil && len(found) < limit {
		args["limit"] = limit - len(found)
		var older []audit.Entry
		older, err = read(` and e.at < @recent`)
		found = append(found, older...)
	}
	return found, unavailable("read audit log", err)
}

// recentMonths returns the start of the month before the latest month of a read. The read ends at the earliest of ends
// that is not zero.
func recentMonths(ends ...time.Time) time.Time {
	latest := time.Now().UTC()
	for _, end := range ends {
		if !end.IsZero() && end.Before(latest) {
			latest = end.UTC()
		}
	}
	return time.Date(latest.Year(), latest.Month()-1, 1, 0, 0, 0, 0, time.UTC)
}

// keptAttempts is how many stopped attempts of a connector are stored: 50 of members and 50 anonymous ones,
// so that anonymous entries cannot evict members' entries.
const keptAttempts = 50

// RecordStopped inserts a stopped attempt, or updates the entry of this clock hour. An answer removes the entry of the
// consent page that waited for it. A user who is not a member of the workspace is recorded as anonymous.
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
		args := pgx.NamedArgs{"id": uuid.Must(uuid.NewV7()), "tenant": stopped.WorkspaceID, "client": stopped.ClientID,
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

// foundSQL selects the attempts of a workspace that a search names, the latest first. The statement contains only the
// conditions that the search has, and reads no attempt if nothing has the name. A search by person finds no user whose
// name the log hides.
func foundSQL(search audit.Search, from audit.Cursor) string {
	grants, stops, people := strings.Builder{}, strings.Builder{}, `with`
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
	if search.Application != "" {
		grants.WriteString(` and ` + anyApplication)
		stops.WriteString(` and ` + anyApplication)
	}
	if search.Person != "" {
		people = peopleSQL + `,`
		grants.WriteString(` and exists (select from people) and g.user_id in (select id from people)`)
		stops.WriteString(` and s.user_id in (select id from people) and exists (select from account.memberships m
      where m.tenant_id = @of and m.user_id = s.user_id)`)
	}
	switch search.Kind {
	case "approved":
		stops.WriteString(` and false`)
	case "stopped":
		grants.WriteString(` and false`)
	}
	grants.WriteString(between("g.created_at", search) + before("(g.created_at, g.id)", from))
	stops.WriteString(between("s.at", search) + before("(s.at, s.id)", from))
	return people + ` attempts as (
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
	return listLong(ctx, l.db, "search connection log", scanAttempt, foundSQL(search, from), args)
}
