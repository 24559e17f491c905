package webhooks

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/eventtype"
	"github.com/almonerhq/almoner/shared/idempotency"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/jsontime"
	"github.com/almonerhq/almoner/shared/listquery"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/webhook"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/list"
	"github.com/almonerhq/almoner/resourceapi/internal/records"
)

// deliveryRecord is a delivery as returned to the workspace.
type deliveryRecord struct {
	ID        uuid.UUID      `json:"id"`
	Cause     webhook.Cause  `json:"cause"`
	Type      string         `json:"type"`
	Sequence  *int64         `json:"sequence"`
	State     string         `json:"state"`
	Status    *int           `json:"status"`
	Problem   *string        `json:"problem"`
	CreatedAt jsontime.Time  `json:"createdAt"`
	TriedAt   *jsontime.Time `json:"triedAt"`
}

func deliveryRecordOf(d webhook.Delivery) deliveryRecord {
	r := deliveryRecord{
		ID:        d.ID,
		Cause:     d.Cause,
		Type:      d.Type,
		Sequence:  d.Sequence,
		State:     "failed",
		Status:    d.Status,
		CreatedAt: jsontime.Time(d.CreatedAt),
		TriedAt:   jsontime.Pointer(d.TriedAt),
	}
	switch {
	case d.TriedAt == nil:
		r.State = "waiting"
	case d.Accepted():
		r.State = "accepted"
	default:
		r.Problem = &d.Problem
	}
	return r
}

// Deliveries handles GET of the log of one endpoint: one page, newest first.
func (e *Endpoint) Deliveries() http.Handler {
	return records.List[webhook.Delivery]{
		Gate:     e.Gate,
		Need:     perm.AccountAPIAccess,
		Cursors:  e.Cursors,
		Refusals: refusals,
		Name:     "webhook deliveries",
		Owner:    func(r *http.Request) (uuid.UUID, error) { return records.PathID(r, webhook.ErrNotFound) },
		// The endpoint belongs to the caller's workspace, so its deliveries do too.
		Find: func(ctx context.Context, workspaceID, id uuid.UUID) error {
			_, err := e.Store.Webhook(ctx, workspaceID, id)
			return err
		},
		Fields:   listquery.FieldsOf[deliveryRecord](),
		ReadOf:   e.Store.Deliveries,
		Record:   func(d webhook.Delivery) any { return deliveryRecordOf(d) },
		Position: func(d webhook.Delivery) list.Position { return list.Position{CreatedAt: d.CreatedAt, ID: d.ID} },
	}.Handler()
}

// Test handles POST …/test, which sends a test event soon: 202 with the delivery.
func (e *Endpoint) Test() http.Handler {
	return e.write(func(r *http.Request, caller gate.Caller, _ []byte) (effect, error) {
		id, err := records.PathID(r, webhook.ErrNotFound)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, writer delivery.Writer) (idempotency.Answer, error) {
			return requested(writer.Test(ctx, caller.WorkspaceID, id))
		}, nil
	}, e.Store.Once)
}

// Resend handles POST …/deliveries/{delivery}/resend, which sends the event of an earlier delivery again: 202 with the
// new delivery.
func (e *Endpoint) Resend() http.Handler {
	return e.write(func(r *http.Request, caller gate.Caller, _ []byte) (effect, error) {
		id, err := records.PathID(r, webhook.ErrNotFound)
		if err != nil {
			return nil, err
		}
		former, err := identity.Parse(r.PathValue("delivery"))
		if err != nil {
			return nil, webhook.ErrNotFound
		}
		need := func(eventType string) error { return needsOf(caller, eventType) }
		return func(ctx context.Context, writer delivery.Writer) (idempotency.Answer, error) {
			d, err := writer.Resend(ctx, caller.WorkspaceID, id, former, need)
			answer, err := requested(d, err)
			answer.Needs = eventtype.Needs([]string{d.Type})
			return answer, err
		}, nil
	}, e.Store.Once)
}

func requested(d webhook.Delivery, err error) (idempotency.Answer, error) {
	if err != nil {
		return idempotency.Answer{}, err
	}
	return answerWith(http.StatusAccepted, deliveryRecordOf(d))
}
