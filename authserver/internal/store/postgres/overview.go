package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/usage"
)

// unusedSQL is true for a credential that is older than @settled, was not used since @since and has no usage since
// then.
const unusedSQL = `created < @settled and (last_used is null or last_used < @since) and not exists (
    select from account.usage w where w.tenant_id = @in and w.credential_id = id and w.day >= @day)`

// looksAt returns the SQL of the first usage.LooksAt rows of a table, with the alias t, that the selection selects by
// creation, which an index has, and of all rows that it selects by id.
func looksAt(selection usage.Selection, columns, table, always string) string {
	order := ` order by t.created_at desc, t.id desc limit @looks`
	if selection.Expiring {
		order = ` order by t.created_at, t.id limit @looks`
	}
	return `(select ` + columns + ` from ` + table + ` t` + where(`t.tenant_id = @in`+always,
		condition{selection.UserID != nil, `t.user_id = @user`},
		condition{selection.IDs != nil, `t.id = any(@ids)`},
		condition{selection.Expiring, `t.created_at >= @from`},
		condition{selection.Idle && selection.IDs == nil, `(t.created_at, t.id) < (@before, @before_id)`},
	) + order + `)`
}

// Tables of looksAt, and the condition of the index of the tokens.
const (
	grantTable, tokenTable = `account.grants`, `account.personal_access_tokens`
	notRevoked             = ` and t.revoked_at is null`
)

// selectionArgs are the arguments of looksAt, which looks at some rows, and of unusedSQL.
func selectionArgs(workspaceID uuid.UUID, s usage.Selection, looks int) pgx.NamedArgs {
	since := usage.FirstShown(s.Now)
	return pgx.NamedArgs{"in": workspaceID, "ids": s.IDs, "user": s.UserID, "from": s.From.At, "from_id": s.From.ID,
		"before": s.Before.At, "before_id": s.Before.ID, "since": since, "day": since.Format(time.DateOnly),
		"settled": s.Now.Add(-usage.SettledAfter), "soon": s.Now.Add(usage.EndsWithin), "limit": s.Limit,
		"looks": looks}
}

// ActiveCredentials lists the active connections and personal access tokens of a workspace that the selection selects.
func (g *Grants) ActiveCredentials(
	ctx context.Context, workspaceID uuid.UUID, selection usage.Selection,
) ([]usage.Credential, error) {
	order := `created desc, id desc`
	if selection.Expiring {
		order = `ends, id`
	}
	order = ` order by ` + order + ` limit @limit`
	// active returns the first of those of one kind that are active. The conditions are on the columns of a credential.
	active := func(live string) string {
		return `(select * from (` + live + `) live` + where(`ends > now()`,
			condition{selection.Idle, unusedSQL},
			condition{selection.Expiring, `ends < @soon`},
			condition{!selection.From.At.IsZero(), `(created, id) >= (@from, @from_id)`},
			condition{!selection.Before.At.IsZero(), `(created, id) < (@before, @before_id)`}) + order + `)`
	}
	const token = `id, tenant_id, user_id, name, created_at, expires_at`
	return list(ctx, g.db, "list active credentials", pgx.RowToStructByNameLax[usage.Credential], `
select k.*, m.name as person, m.email from (`+active(`
  select 'connection' as kind, g.id, g.user_id, c.name, g.created_at as created, g.last_used_at as last_used,
    g.ends_at as ends
  from `+looksAt(selection, `*`, grantTable, ``)+` g join account.oauth_clients c on c.id = g.client_id
  where g.state = 'active' and g.generation > 0 and `+notOverSQL)+` union all `+active(`
  select 'personal_access_token' as kind, p.id, p.user_id, p.name, p.created_at as created, u.used_at as last_used,
    p.expires_at as ends
  from `+looksAt(selection, token, tokenTable, notRevoked)+` p
    left join account.token_uses u on u.tenant_id = p.tenant_id and u.token_id = p.id
  where `+tokenNotEndingSQL)+`
) k join account.users m on m.id = k.user_id`+order, selectionArgs(workspaceID, selection, usage.LooksAt))
}

// Bound returns the place of the last of the first usage.LooksAt connections and tokens of the selection, if there are
// more.
func (g *Grants) Bound(ctx context.Context, workspaceID uuid.UUID, selection usage.Selection) (audit.Cursor, error) {
	order := ` order by at desc, id desc`
	if selection.Expiring {
		order = ` order by at, id`
	}
	const place = `t.created_at as at, t.id`
	found, err := list(ctx, g.db, "bound a list of credentials", pgx.RowToStructByName[audit.Cursor], `
select at, id from (`+looksAt(selection, place, grantTable, ``)+` union all `+
		looksAt(selection, place, tokenTable, notRevoked)+`
) k`+order+` offset @looks - 2 limit 2`, selectionArgs(workspaceID, selection, usage.LooksAt+1))
	if len(found) < 2 {
		return audit.Cursor{}, err
	}
	return found[0], nil
}

// BusiestCredentials lists the credentials of a workspace with the most requests since a day, without those of deleted
// users.
func (g *Grants) BusiestCredentials(
	ctx context.Context, workspaceID uuid.UUID, user *uuid.UUID, since time.Time, limit int,
) (out usage.List, err error) {
	type counted struct {
		usage.Credential
		Partial bool
		Since   time.Time
	}
	found, err := list(ctx, g.db, "list busiest credentials", pgx.RowToStructByNameLax[counted], `
with counted as materialized (
  select kind, credential_id, user_id, day, requests, refused from account.usage u`+where(
		`u.tenant_id = @in and u.day >= @day`, condition{user != nil, `u.user_id = @user`})+`
  order by u.day desc, u.credential_id desc limit @rows)
select most.*, coalesce(c.name, p.name, '') as name, m.name as person, m.email, n.partial, n.since,
  not coalesce(g.state = 'active' and g.ends_at > @now, p.revoked_at is null and p.expires_at > @now, false) as ended
from (select kind, credential_id as id, user_id, sum(requests)::bigint as requests, sum(refused)::bigint as refused
  from counted group by kind, credential_id, user_id order by requests desc, id limit @limit) most
cross join (select count(*) = @rows as partial, min(day) as since from counted) n
join account.users m on m.id = most.user_id and m.deleted_at is null
left join account.grants g on g.tenant_id = @in and g.id = most.id
left join account.oauth_clients c on c.id = g.client_id
left join account.personal_access_tokens p on p.tenant_id = @in and p.id = most.id
order by most.requests desc, most.id`, pgx.NamedArgs{"in": workspaceID, "user": user,
		"day": since.Format(time.DateOnly), "now": time.Now(), "rows": usage.Counts, "limit": limit})
	for _, c := range found {
		out.Credentials, out.Partial, out.Since = append(out.Credentials, c.Credential), c.Partial, c.Since
	}
	return out, err
}
