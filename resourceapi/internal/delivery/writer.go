package delivery

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/webhook"
)

// An Event says that a record changed. It contains no values.
//
// The database writes an event in the transaction of its change. It assigns sequences when events are read, a
// bounded number at a time, so that no event appears later with a lower one. Package worker assigns the rest. Package
// endpoint/events serves the events, and this package sends them to webhook endpoints.
type Event struct {
	Sequence int64
	Type     string          // a subject and what happened to it, such as programme.created
	Data     json.RawMessage // the id and, of an update, the names of the changed fields
	At       time.Time
}

// A Writer changes the endpoints of a workspace within one transaction, and records the audit events. It returns the
// errors of package webhook.
type Writer interface {
	Add(ctx context.Context, e webhook.Endpoint, secret webhook.Sealed) (webhook.Endpoint, error)
	Delete(ctx context.Context, workspaceID, id, by uuid.UUID) error
	// Enable enables an endpoint, which then gets the events that it missed and that by may read, without personal data
	// if another user asked for it.
	Enable(ctx context.Context, workspaceID, id uuid.UUID, by webhook.Maker) (webhook.Endpoint, error)
	Disable(ctx context.Context, workspaceID, id, by uuid.UUID) (webhook.Endpoint, error)
	// OmitPersonalData omits the personal data of events. Only the page includes it.
	OmitPersonalData(ctx context.Context, workspaceID, id, by uuid.UUID) (webhook.Endpoint, error)
	// ReplaceSecret replaces the secret of an endpoint. For overlap, events are also signed with the previous secret.
	ReplaceSecret(
		ctx context.Context, workspaceID, id, by uuid.UUID, secret webhook.Sealed, overlap time.Duration,
	) (webhook.Endpoint, error)
	// Test queues a test event. Resend queues the event of an earlier delivery; need checks the type of the event.
	Test(ctx context.Context, workspaceID, id uuid.UUID) (webhook.Delivery, error)
	Resend(
		ctx context.Context, workspaceID, id, former uuid.UUID, need func(eventType string) error,
	) (webhook.Delivery, error)
}
