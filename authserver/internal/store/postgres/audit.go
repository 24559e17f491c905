package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/contract/identity"
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
	return pgx.NamedArgs{"id": identity.New(), "tenant": workspaceID, "user": e.UserID, "actor": e.Actor,
		"action": e.Action, "subject": e.Subject, "detail": detail, "request": e.RequestID}
}

// Record appends a single event. An event that belongs to a change is written in the transaction of that
// change instead.
func (l *Logs) Record(ctx context.Context, e audit.Event) error {
	_, err := l.exec(ctx, "record event", insertEvent, eventArgs(e))
	return err
}

// RecordRefusal appends a grant.refused event, unless this clock hour already has one for the same grant and
// reason.
func (l *Logs) RecordRefusal(ctx context.Context, e audit.Event) error {
	_, err := l.exec(ctx, "record refusal", insertEvent+` on conflict do nothing`, eventArgs(e))
	return err
}

// isUUID guards a cast: a malformed text in the log must not hide the other events.
const isUUID = `'^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'`

// clientOf is the client that an event e concerns, as text, or null.
const clientOf = `case when e.subject like 'client:%' then substr(e.subject, 8) else e.detail ->> 'client_id' end`

// namedSQL and namesSQL, with a statement between them that selects events, add the names of the affected user, the
// client and the actor.
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
// of their names and addresses, and other users only by their whole e-mail address, so that it does not read all users
// of the deployment.
const (
	peopleSQL = `select p.id from account.memberships y join account.users p on p.id = y.user_id
		where y.tenant_id = @of and strpos(lower(p.name || ' ' || p.email), lower(@person)) > 0
		union all select p.id from account.users p where p.email = any(@addresses)`
	applicationsSQL = `select n.id from account.oauth_clients n where strpos(lower(n.name), lower(@application)) > 0`
)

// eventsSQL selects the latest events for which the condition of holds. The statement contains only the conditions
// that the search has, so that each statement has its own plan.
func eventsSQL(of string, search audit.Search, from audit.Cursor) string {
	text := `select * from account.audit_events e where ` + of
	if search.RequestID != "" {
		text += ` and e.request_id = @request and e.request_id <> ''`
	}
	if search.Person != "" {
		text += ` and (e.user_id in (` + peopleSQL + `)
			or e.actor in (select 'user:' || id from (` + peopleSQL + `) as actors))`
	}
	if search.Application != "" {
		text += ` and ` + clientOf + ` in (select id::text from (` + applicationsSQL + `) as named)`
	}
	if search.Client != uuid.Nil {
		text += ` and ` + clientOf + ` = @client::uuid::text`
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
	return pgx.NamedArgs{"of": of, "at": from.At, "id": from.ID, "limit": limit, "request": search.RequestID,
		"person": spelling.Search(search.Person), "addresses": spelling.Spellings(search.Person),
		"application": search.Application, "client": search.Client, "since": search.Since, "until": search.Until}
}

// EventsOfWorkspace reads the audit log of a workspace backwards from a cursor.
func (l *Logs) EventsOfWorkspace(
	ctx context.Context, workspaceID uuid.UUID, search audit.Search, from audit.Cursor, limit int,
) ([]audit.Entry, error) {
	return l.entries(ctx, `e.tenant_id = @of`, workspaceID, search, from, limit)
}

// EventsOfUser reads the latest events that concern a user, inside and outside workspaces.
func (l *Logs) EventsOfUser(ctx context.Context, user uuid.UUID, limit int) ([]audit.Entry, error) {
	return l.entries(ctx, `e.user_id = @of`, user, audit.Search{}, audit.Cursor{}, limit)
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
	found, err := l.readEntries(ctx, namedSQL+eventsSQL(of+` and e.at >= @recent`, search, from)+namesSQL, args)
	if err != nil || len(found) == limit {
		return found, err
	}
	args["limit"] = limit - len(found)
	older, err := l.readEntries(ctx, namedSQL+eventsSQL(of+` and e.at < @recent`, search, from)+namesSQL, args)
	if err != nil {
		return nil, err
	}
	return append(found, older...), nil
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

func (l *Logs) readEntries(ctx context.Context, sql string, args pgx.NamedArgs) ([]audit.Entry, error) {
	found, err := collect(ctx, l.pool, pgx.RowToStructByNameLax[audit.Entry], sql, args)
	return found, unavailable("read audit log", err)
}
