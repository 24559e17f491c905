package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/usage"
)

// unusedSQL is true for a credential that is older than @settled, was not used since @since and has no usage since
// then.
const unusedSQL = `created < @settled and (last_used is null or last_used < @since) and not exists (
    select from account.usage w where w.tenant_id = @in and w.credential_id = id and w.day >= @day)`

// ActiveCredentials lists the active connections and personal access tokens of a workspace that the selection selects.
func (g *Grants) ActiveCredentials(
	ctx context.Context, workspaceID uuid.UUID, selection usage.Selection,
) ([]usage.Credential, error) {
	order, since := `created desc, id desc`, usage.FirstShown(selection.Now)
	if selection.Expiring {
		order = `ends, id`
	}
	// latest returns the first of the live credentials of one kind. The conditions are on the columns of a credential.
	latest := func(live string) string {
		return `(select * from (` + live + `) live` + where(`true`,
			condition{selection.IDs != nil, `id = any(@ids)`},
			condition{selection.UserID != nil, `user_id = @user`},
			condition{selection.Idle, unusedSQL},
			condition{selection.Expiring, `ends < @soon`},
			condition{selection.Before.ID != uuid.Nil, `(created, id) < (@before, @before_id)`},
		) + ` order by ` + order + ` limit @limit)`
	}
	return list(ctx, g.db, "list active credentials", pgx.RowToStructByNameLax[usage.Credential], `
select k.*, m.name as person, m.email from (`+latest(`
  select 'connection' as kind, g.id, g.user_id, c.name, g.created_at as created, g.last_used_at as last_used,
    g.ends_at as ends
  from account.grants g join account.oauth_clients c on c.id = g.client_id
  where `+redeemedSQL+` and `+liveSQL)+`
  union all `+latest(`
  select 'personal_access_token' as kind, p.id, p.user_id, p.name, p.created_at as created, u.used_at as last_used,
    p.expires_at as ends
  from `+tokenRows+`
  where p.tenant_id = @in and p.revoked_at is null and p.expires_at > now() and `+tokenNotEndingSQL)+`
) k join account.users m on m.id = k.user_id order by `+order+` limit @limit`, pgx.NamedArgs{"in": workspaceID,
		"ids": selection.IDs, "user": selection.UserID, "since": since, "day": since.Format(time.DateOnly),
		"settled": selection.Now.Add(-usage.SettledAfter), "soon": selection.Now.Add(usage.EndsWithin),
		"before": selection.Before.At, "before_id": selection.Before.ID, "limit": selection.Limit})
}

// mostRows is the number of rows of usage that BusiestCredentials reads, the latest days first.
const mostRows = 200_000

// BusiestCredentials lists the credentials of a workspace with the most requests since a day, without those of deleted
// users.
func (g *Grants) BusiestCredentials(
	ctx context.Context, workspaceID uuid.UUID, user *uuid.UUID, since time.Time, limit int,
) ([]usage.Credential, error) {
	return list(ctx, g.db, "list busiest credentials", pgx.RowToStructByNameLax[usage.Credential], `
select most.*, coalesce(c.name, p.name, '') as name, m.name as person, m.email,
  not coalesce(g.state = 'active' and g.ends_at > @now, p.revoked_at is null and p.expires_at > @now, false) as ended
from (select kind, credential_id as id, user_id, sum(requests)::bigint as requests, sum(refused)::bigint as refused
  from (select * from account.usage u`+where(`u.tenant_id = @in and u.day >= @day`,
		condition{user != nil, `u.user_id = @user`})+` order by u.day desc limit @rows) counted
  group by kind, credential_id, user_id order by requests desc, id limit @limit) most
join account.users m on m.id = most.user_id and m.deleted_at is null
left join account.grants g on g.tenant_id = @in and g.id = most.id
left join account.oauth_clients c on c.id = g.client_id
left join account.personal_access_tokens p on p.tenant_id = @in and p.id = most.id
order by most.requests desc, most.id`, pgx.NamedArgs{"in": workspaceID, "user": user,
		"day": since.Format(time.DateOnly), "now": time.Now(), "rows": mostRows, "limit": limit})
}
