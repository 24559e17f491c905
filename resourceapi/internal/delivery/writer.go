package delivery

import (
	"context"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/webhook"
)

// A Writer changes the endpoints of a workspace within one transaction, with the events of the audit log. Its errors
// are those of package webhook.
type Writer interface {
	Add(ctx context.Context, e webhook.Endpoint, secret webhook.Sealed) (webhook.Endpoint, error)
	Delete(ctx context.Context, workspaceID, id, by uuid.UUID) error
	// Enable makes an endpoint go on where it stopped, with what by may read.
	Enable(ctx context.Context, workspaceID, id, by uuid.UUID) (webhook.Endpoint, error)
	Disable(ctx context.Context, workspaceID, id, by uuid.UUID) (webhook.Endpoint, error)
	// Test adds a test event to the deliveries, and Resend the event of an earlier delivery. need checks its type.
	Test(ctx context.Context, workspaceID, id uuid.UUID) (webhook.Delivery, error)
	Resend(
		ctx context.Context,
		workspaceID, id, former uuid.UUID,
		need func(eventType string) error,
	) (webhook.Delivery, error)
}
