package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
)

// isUUID guards a cast: a malformed text in the log must not hide the other events.
const isUUID = `'^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'`

// entrySQL reads events, the latest first, with the names of the affected user, the client and the actor. Its first %s
// selects events e by their own columns, the second one by the names.
const entrySQL = `
select e.id, e.at, nullif(e.tenant_id, '00000000-0000-0000-0000-000000000000'), e.user_id, e.actor, e.action,
  e.subject, e.detail, e.request_id, coalesce(u.name, ''), coalesce(c.name, ''), coalesce(a.name, '')
from (select * from account.audit_events e where %s) e
cross join lateral (select
  case when e.subject like 'client:%%' then substr(e.subject, 8) else e.detail ->> 'client_id' end as client,
  case when e.actor like 'user:%%' then substr(e.actor, 6) end as actor) named
left join account.users u on u.id = e.user_id
left join account.users a on a.id = case when named.actor ~ ` + isUUID + ` then named.actor::uuid end
left join account.oauth_clients c on c.id = case when named.client ~ ` + isUUID + ` then named.client::uuid end
where %s order by e.at desc, e.id desc limit @limit`

const (
	ofPerson = `(@person = '' or strpos(lower(concat_ws(' ', u.name, u.email, a.name, a.email)), lower(@person)) > 0)
  and (@application = '' or strpos(lower(c.name), lower(@application)) > 0)`
	// newestOfEach is for a search without names: the names are read of the selected events alone.
	newestOfEach = ` order by e.at desc, e.id desc limit @limit`
)

// EventsOfWorkspace reads the audit log of a workspace backwards from a cursor.
func (s *Store) EventsOfWorkspace(
	ctx context.Context,
	workspaceID uuid.UUID,
	search audit.Search,
	from audit.Cursor,
	limit int,
) ([]audit.Entry, error) {
	return s.entries(ctx, `e.tenant_id = @of`, workspaceID, search, from, limit)
}

// EventsOfUser reads the latest events that concern a user, inside and outside workspaces.
func (s *Store) EventsOfUser(ctx context.Context, user uuid.UUID, limit int) ([]audit.Entry, error) {
	return s.entries(ctx, `e.user_id = @of`, user, audit.Search{}, audit.Cursor{}, limit)
}

// entries reads the latest month and the one before it, which are two partitions, and older events only if these have
// too few.
func (s *Store) entries(
	ctx context.Context,
	of string,
	id uuid.UUID,
	search audit.Search,
	from audit.Cursor,
	limit int,
) ([]audit.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	args := pgx.NamedArgs{
		"of":          id,
		"at":          from.At,
		"id":          from.ID,
		"limit":       limit,
		"request":     search.RequestID,
		"person":      search.Person,
		"application": search.Application,
		"since":       search.Since,
		"until":       search.Until,
		"recent":      recentMonths(from.At, search.Until),
	}
	events, names := conditions(of, search, from)
	found, err := s.read(ctx, fmt.Sprintf(entrySQL, `e.at >= @recent and `+events, names), args)
	if err != nil || len(found) == limit {
		return found, err
	}
	args["limit"] = limit - len(found)
	older, err := s.read(ctx, fmt.Sprintf(entrySQL, `e.at < @recent and `+events, names), args)
	if err != nil {
		return nil, err
	}
	return append(found, older...), nil
}

// recentMonths returns the start of the month before the latest one that is read. The read ends before the ends that
// are not zero.
func recentMonths(ends ...time.Time) time.Time {
	latest := time.Now().UTC()
	for _, end := range ends {
		if !end.IsZero() && end.Before(latest) {
			latest = end.UTC()
		}
	}
	return time.Date(latest.Year(), latest.Month()-1, 1, 0, 0, 0, 0, time.UTC)
}

// conditions returns the SQL conditions of a search: those on the events, and those on the names.
func conditions(of string, search audit.Search, from audit.Cursor) (events, names string) {
	events = of
	for _, one := range []struct {
		asked     bool
		condition string
	}{
		{search.RequestID != "", `e.request_id = @request`},
		{!search.Since.IsZero(), `e.at >= @since`},
		{!search.Until.IsZero(), `e.at < @until`},
		{!from.At.IsZero(), `(e.at, e.id) < (@at, @id)`},
	} {
		if one.asked {
			events += ` and ` + one.condition
		}
	}
	if search.Person == "" && search.Application == "" {
		return events + newestOfEach, `true`
	}
	return events, ofPerson
}

func (s *Store) read(ctx context.Context, sql string, args pgx.NamedArgs) ([]audit.Entry, error) {
	rows, err := s.pool.Query(ctx, sql, args)
	if err != nil {
		return nil, unavailable("read audit log", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (audit.Entry, error) {
		var e audit.Entry
		err := row.Scan(
			&e.ID,
			&e.At,
			&e.WorkspaceID,
			&e.UserID,
			&e.Actor,
			&e.Action,
			&e.Subject,
			&e.Detail,
			&e.RequestID,
			&e.Person,
			&e.Application,
			&e.ActorName,
		)
		return e, err
	})
	return found, unavailable("read audit log", err)
}
