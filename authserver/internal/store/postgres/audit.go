package postgres

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/identity"
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
	return pgx.NamedArgs{
		"id":      identity.New(),
		"tenant":  workspaceID,
		"user":    e.UserID,
		"actor":   e.Actor,
		"action":  e.Action,
		"subject": e.Subject,
		"detail":  detail,
		"request": e.RequestID,
	}
}

// Record appends a single event. An event that belongs to a change is written in the transaction of that
// change instead.
func (s *Store) Record(ctx context.Context, e audit.Event) error {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	_, err := s.pool.Exec(ctx, insertEvent, eventArgs(e))
	return unavailable("record event", err)
}
