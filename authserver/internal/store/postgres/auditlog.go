package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
)

// isUUID guards a cast: a malformed text in the log must not hide the other events.
const isUUID = `'^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'`

// entrySQL reads events e, the latest first, with the names of the affected user, the client and the actor.
const entrySQL = `
select e.id, e.at, e.tenant_id, e.user_id, e.actor, e.action, e.subject, e.detail, e.request_id,
  coalesce(u.name, ''), coalesce(c.name, ''), coalesce(a.name, '')
from account.audit_events e
cross join lateral (select
  case when e.subject like 'client:%' then substr(e.subject, 8) else e.detail ->> 'client_id' end as client,
  case when e.actor like 'user:%' then substr(e.actor, 6) end as actor) named
left join account.users u on u.id = e.user_id
left join account.users a on a.id = case when named.actor ~ ` + isUUID + ` then named.actor::uuid end
left join account.oauth_clients c on c.id = case when named.client ~ ` + isUUID + ` then named.client::uuid end
where `

const searched = `
  and (@request = '' or e.request_id = @request)
  and (@person = '' or strpos(lower(concat_ws(' ', u.name, u.email, a.name, a.email)), lower(@person)) > 0)
  and (@application = '' or strpos(lower(c.name), lower(@application)) > 0)
  and (@since::timestamptz is null or e.at >= @since) and (@until::timestamptz is null or e.at < @until)`

const newestFirst = ` and (@at::timestamptz is null or (e.at, e.id) < (@at, @id)) order by e.at desc, e.id desc
	limit @limit`

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
		"at":          orNull(from.At),
		"id":          from.ID,
		"limit":       limit,
		"request":     search.RequestID,
		"person":      search.Person,
		"application": search.Application,
		"since":       orNull(search.Since),
		"until":       orNull(search.Until),
	}
	rows, err := s.pool.Query(ctx, entrySQL+of+searched+newestFirst, args)
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

// orNull returns the time, or null for the zero time.
func orNull(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}
