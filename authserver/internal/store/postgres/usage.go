package postgres

import (
	"cmp"
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/usage"
)

// Usage lists the rows of a workspace that the filter selects, the latest day first. Those of deleted users, which
// retention deletes, are no longer listed.
func (g *Grants) Usage(ctx context.Context, workspaceID uuid.UUID, filter usage.Filter) ([]usage.Row, error) {
	after := *cmp.Or(filter.After, &usage.Row{})
	var limit *int // none
	if filter.Limit > 0 {
		limit = &filter.Limit
	}
	return list(ctx, g.db, "list usage", pgx.RowToStructByNameLax[usage.Row], `
select u.day, u.credential_id, u.user_id, u.kind, u.operation, u.service_id, coalesce(c.name, '') as service,
    u.requests, u.refused, u.records
  from account.usage u join account.users m on m.id = u.user_id and m.deleted_at is null
  left join account.oauth_clients c on c.id = u.service_id`+where(
		`u.tenant_id = @in and u.day between @from and @to`,
		condition{filter.CredentialID != nil, `u.credential_id = @credential`},
		condition{filter.UserID != nil, `u.user_id = @user`},
		condition{filter.After != nil,
			`(u.day, u.credential_id, u.operation, u.service_id) < (@day, @after, @operation, @service)`},
	)+` order by u.day desc, u.credential_id desc, u.operation desc, u.service_id desc limit @limit`, pgx.NamedArgs{
		"in": workspaceID, "from": filter.From.Format(time.DateOnly), "to": filter.To.Format(time.DateOnly),
		"credential": filter.CredentialID, "user": filter.UserID, "limit": limit, "day": after.Day,
		"after": after.CredentialID, "operation": after.Operation, "service": after.ServiceID,
	})
}
