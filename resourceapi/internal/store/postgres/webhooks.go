package postgres

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
	"github.com/almonerhq/almoner/shared/server/inflight"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
)

// Webhooks is the part of the Store that stores webhook endpoints and their deliveries.
type Webhooks struct {
	pool  *database
	turns *inflight.Requests[uuid.UUID]
	steps EventSteps
}

// Webhooks returns the part of the store for webhooks.
func (s *Store) Webhooks() *Webhooks { return &Webhooks{s.pool, s.turns, s.steps} }

// webhookWriting implements delivery.Writer within one transaction.
type webhookWriting struct{ tx pgx.Tx }

// Once is like Store.Once, for changes of webhook endpoints.
func (w *Webhooks) Once(
	ctx context.Context, key rest.Key, effect func(context.Context, delivery.Writer) (rest.Answer, error),
) (rest.Answer, error) {
	return once(ctx, w.pool, w.turns, key, func(ctx context.Context, tx pgx.Tx) (rest.Answer, error) {
		return effect(ctx, &webhookWriting{tx})
	})
}

// Webhook reads an endpoint of the workspace. It returns webhook.ErrNotFound.
func (w *Webhooks) Webhook(ctx context.Context, workspaceID, id uuid.UUID) (webhook.Endpoint, error) {
	ctx, cancel := w.pool.bounded(ctx)
	defer cancel()
	e, err := webhook.Find(ctx, w.pool, workspaceID, id)
	return e, outcome(err)
}

// Webhooks calls take with each endpoint of one page of the workspace, newest first, until take returns false.
func (w *Webhooks) Webhooks(
	ctx context.Context, workspaceID uuid.UUID, r rest.Range, take func(webhook.Endpoint) bool,
) (rest.End, error) {
	text := "select " + webhook.Columns + " from account.webhooks w where w.tenant_id = $1"
	return readRange(ctx, w.pool, text, "w", []any{workspaceID}, r, webhook.Scan, take)
}

// Deliveries calls take with each delivery of one page of an endpoint's log, newest first, until take returns false.
func (w *Webhooks) Deliveries(
	ctx context.Context, workspaceID, endpoint uuid.UUID, r rest.Range, take func(webhook.Delivery) bool,
) (rest.End, error) {
	text := "select " + webhook.DeliveryColumns +
		" from account.webhook_deliveries d where d.tenant_id = $1 and d.webhook_id = $2"
	return readRange(ctx, w.pool, text, "d", []any{workspaceID, endpoint}, r, webhook.ScanDelivery, take)
}

// Add implements delivery.Writer.
func (w *webhookWriting) Add(ctx context.Context, e webhook.Endpoint, secret webhook.Sealed) (webhook.Endpoint, error) {
	if err := webhook.Add(ctx, w.tx, e, secret); err != nil {
		return webhook.Endpoint{}, err
	}
	if err := recordWebhook(ctx, w.tx, "webhook.added", e, &e.UserID); err != nil {
		return webhook.Endpoint{}, err
	}
	return webhook.Find(ctx, w.tx, e.WorkspaceID, e.ID)
}

// Delete implements delivery.Writer.
func (w *webhookWriting) Delete(ctx context.Context, workspaceID, id, by uuid.UUID) error {
	e, err := webhook.Delete(ctx, w.tx, workspaceID, id)
	if err != nil {
		return err
	}
	return recordWebhook(ctx, w.tx, "webhook.deleted", e, &by)
}

// Enable implements delivery.Writer.
func (w *webhookWriting) Enable(
	ctx context.Context, workspaceID, id uuid.UUID, by webhook.Maker,
) (webhook.Endpoint, error) {
	e, err := webhook.Enable(ctx, w.tx, workspaceID, id, by)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	return e, recordWebhook(ctx, w.tx, "webhook.enabled", e, &by.UserID)
}

// Disable implements delivery.Writer.
func (w *webhookWriting) Disable(ctx context.Context, workspaceID, id, by uuid.UUID) (webhook.Endpoint, error) {
	e, err := webhook.Disable(ctx, w.tx, workspaceID, id)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	return e, recordWebhook(ctx, w.tx, "webhook.disabled", e, &by)
}

// OmitPersonalData implements delivery.Writer.
func (w *webhookWriting) OmitPersonalData(
	ctx context.Context, workspaceID, id, by uuid.UUID,
) (webhook.Endpoint, error) {
	e, err := webhook.SetPersonalData(ctx, w.tx, workspaceID, id, by, false)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	return e, recordWebhook(ctx, w.tx, "webhook.changed", e, &by)
}

// ReplaceSecret implements delivery.Writer.
func (w *webhookWriting) ReplaceSecret(
	ctx context.Context, workspaceID, id, by uuid.UUID, secret webhook.Sealed, overlap time.Duration,
) (webhook.Endpoint, error) {
	e, err := webhook.ReplaceSecret(ctx, w.tx, workspaceID, id, identity.New(), secret, overlap)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	return e, recordWebhook(ctx, w.tx, "webhook.secret_replaced", e, &by)
}

// Test implements delivery.Writer.
func (w *webhookWriting) Test(ctx context.Context, workspaceID, id uuid.UUID) (webhook.Delivery, error) {
	made := identity.New()
	if err := webhook.RequestTest(ctx, w.tx, workspaceID, id, made); err != nil {
		return webhook.Delivery{}, err
	}
	return findDelivery(ctx, w.tx, workspaceID, made)
}

// Resend implements delivery.Writer.
func (w *webhookWriting) Resend(
	ctx context.Context, workspaceID, id, former uuid.UUID, need func(eventType string) error,
) (webhook.Delivery, error) {
	made := identity.New()
	if err := webhook.RequestResend(ctx, w.tx, workspaceID, id, former, made, need); err != nil {
		return webhook.Delivery{}, err
	}
	return findDelivery(ctx, w.tx, workspaceID, made)
}

func findDelivery(ctx context.Context, tx pgx.Tx, workspaceID, id uuid.UUID) (webhook.Delivery, error) {
	text := "select " + webhook.DeliveryColumns +
		" from account.webhook_deliveries d where d.tenant_id = $1 and d.id = $2"
	return oneRow(ctx, tx, webhook.ErrNotFound, webhook.ScanDelivery, text, workspaceID, id)
}

// recordWebhook adds an event to the audit log of the workspace. by is nil if the service acted. The event contains
// only the host of the URL, since the rest may contain a secret.
func recordWebhook(ctx context.Context, q webhook.Querier, action string, e webhook.Endpoint, by *uuid.UUID) error {
	detail := map[string]any{"host": ""}
	if parsed, err := url.Parse(e.URL); err == nil {
		detail["host"] = parsed.Host
	}
	if !e.Enabled && action == "webhook.disabled" {
		detail["reason"] = e.Reason
	}
	if action == "webhook.changed" || (e.PersonalData && action == "webhook.added") {
		detail["personal_data"] = e.PersonalData
	}
	_, err := q.Exec(ctx, "select account.record_webhook($1, $2, $3, $4, $5, $6, $7)",
		identity.New(), e.WorkspaceID, by, action, e.ID, detail, web.RequestID(ctx))
	if err != nil {
		return fmt.Errorf("record a change of a webhook endpoint: %w", err)
	}
	return nil
}
