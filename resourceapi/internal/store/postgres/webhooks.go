package postgres

import (
	"context"
	"net/url"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/database/pg"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
)

// Webhooks is the part of the Store that stores webhook endpoints and their deliveries.
type Webhooks struct {
	*Store
	changes, looks pg.Batcher[step, error]
}

// Webhook reads an endpoint of the workspace. It returns webhook.ErrNotFound.
func (w *Webhooks) Webhook(ctx context.Context, workspaceID, id uuid.UUID) (webhook.Endpoint, error) {
	e, err := webhook.Find(ctx, w.pool, workspaceID, id)
	return e, outcome(err)
}

// Webhooks calls take with each endpoint of one page of the workspace, newest first, until take returns false.
func (w *Webhooks) Webhooks(
	ctx context.Context, workspaceID uuid.UUID, r rest.Range, take func(webhook.Endpoint) bool,
) (rest.End, error) {
	text := "select " + webhook.Columns + " from account.webhooks w where w.tenant_id = $1"
	return readRange(ctx, w.pool, text, "w", arguments{workspaceID}, r, webhook.Scan, take)
}

// Deliveries calls take with each delivery of one page of an endpoint's log, newest first, until take returns false.
func (w *Webhooks) Deliveries(
	ctx context.Context, workspaceID, endpoint uuid.UUID, r rest.Range, take func(webhook.Delivery) bool,
) (rest.End, error) {
	text := "select " + webhook.DeliveryColumns +
		" from account.webhook_deliveries d where d.tenant_id = $1 and d.webhook_id = $2"
	return readRange(ctx, w.pool, text, "d", arguments{workspaceID, endpoint}, r, webhook.ScanDelivery, take)
}

// Add implements delivery.Writer.
func (w *writing) Add(ctx context.Context, e webhook.Endpoint, secret webhook.Sealed) (webhook.Endpoint, error) {
	if _, err := w.recorded(ctx, "webhook.added", e.UserID, e, webhook.Add(ctx, w.tx, e, secret)); err != nil {
		return webhook.Endpoint{}, err
	}
	return webhook.Find(ctx, w.tx, e.WorkspaceID, e.ID)
}

// Delete implements delivery.Writer.
func (w *writing) Delete(ctx context.Context, workspaceID, id, by uuid.UUID) error {
	e, err := webhook.Delete(ctx, w.tx, workspaceID, id)
	_, err = w.recorded(ctx, "webhook.deleted", by, e, err)
	return err
}

// Enable implements delivery.Writer.
func (w *writing) Enable(ctx context.Context, workspaceID, id uuid.UUID, by webhook.Maker) (webhook.Endpoint, error) {
	e, err := webhook.Enable(ctx, w.tx, workspaceID, id, by)
	return w.recorded(ctx, "webhook.enabled", by.UserID, e, err)
}

// Disable implements delivery.Writer.
func (w *writing) Disable(ctx context.Context, workspaceID, id, by uuid.UUID) (webhook.Endpoint, error) {
	e, err := webhook.Disable(ctx, w.tx, workspaceID, id)
	return w.recorded(ctx, "webhook.disabled", by, e, err)
}

// OmitPersonalData implements delivery.Writer.
func (w *writing) OmitPersonalData(ctx context.Context, workspaceID, id, by uuid.UUID) (webhook.Endpoint, error) {
	e, err := webhook.SetPersonalData(ctx, w.tx, workspaceID, id, by, false)
	return w.recorded(ctx, "webhook.changed", by, e, err)
}

// ReplaceSecret implements delivery.Writer.
func (w *writing) ReplaceSecret(
	ctx context.Context, workspaceID, id, by uuid.UUID, secret webhook.Sealed, overlap time.Duration,
) (webhook.Endpoint, error) {
	e, err := webhook.ReplaceSecret(ctx, w.tx, workspaceID, id, uuid.Must(uuid.NewV7()), secret, overlap)
	return w.recorded(ctx, "webhook.secret_replaced", by, e, err)
}

// recorded records a user's change of an endpoint, unless it failed with err.
func (w *writing) recorded(
	ctx context.Context, action string, by uuid.UUID, e webhook.Endpoint, err error,
) (webhook.Endpoint, error) {
	t := w.transaction(ctx)
	t.fail("", err)
	t.recordWebhook(action, e, &by)
	return e, t.err
}

// Test implements delivery.Writer.
func (w *writing) Test(ctx context.Context, workspaceID, id uuid.UUID) (webhook.Delivery, error) {
	made := uuid.Must(uuid.NewV7())
	return w.requested(ctx, workspaceID, made, webhook.RequestTest(ctx, w.tx, workspaceID, id, made))
}

// Resend implements delivery.Writer.
func (w *writing) Resend(
	ctx context.Context, workspaceID, id, former uuid.UUID, need func(eventType string) error,
) (webhook.Delivery, error) {
	made := uuid.Must(uuid.NewV7())
	return w.requested(ctx, workspaceID, made, webhook.RequestResend(ctx, w.tx, workspaceID, id, former, made, need))
}

// requested returns a delivery that was requested, unless the request failed with err.
func (w *writing) requested(ctx context.Context, workspaceID, id uuid.UUID, err error) (webhook.Delivery, error) {
	if err != nil {
		return webhook.Delivery{}, err
	}
	text := "select " + webhook.DeliveryColumns +
		" from account.webhook_deliveries d where d.tenant_id = $1 and d.id = $2"
	t := w.transaction(ctx)
	found := oneOf(t, "", webhook.ErrNotFound, webhook.ScanDelivery, text, workspaceID, id)
	return found, t.err
}

// recordWebhook adds an event to the audit log of the workspace. by is nil if the service acted. The event contains
// only the host of the URL, since the rest may contain a secret.
func (t *transaction) recordWebhook(action string, e webhook.Endpoint, by *uuid.UUID) {
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
	t.exec("record a change of a webhook endpoint", "select account.record_webhook($1, $2, $3, $4, $5, $6, $7)",
		uuid.Must(uuid.NewV7()), e.WorkspaceID, by, action, e.ID, detail, web.RequestID(t.ctx))
}

// PublishWebhookKey makes authserver seal the secrets of new endpoints with the key.
func (w *Webhooks) PublishWebhookKey(ctx context.Context, publicKey []byte) error {
	return w.exec(ctx, "publish the key of webhook secrets", `insert into account.webhook_keys (public_key) values ($1)
		on conflict (public_key) do update set published_at = clock_timestamp()`, publicKey)
}

// ResealWebhooks replaces secrets that are sealed with another key, in batches. It does not change secrets for which
// reseal returns an error, and returns the last of these errors.
func (w *Webhooks) ResealWebhooks(
	ctx context.Context, publicKey []byte, reseal func(id uuid.UUID, secret webhook.Sealed) (webhook.Sealed, error),
) (failed error) {
	type row struct {
		TenantID, ID uuid.UUID
		webhook.Sealed
	}
	for after := (row{}); ; {
		some, err := allRows(ctx, w.pool, pgx.RowToStructByName[row], `
			select tenant_id, id, secret, secret_key as key from account.webhooks
			where secret_key <> $1 and (tenant_id, id) > ($2, $3) order by tenant_id, id limit 100`,
			publicKey, after.TenantID, after.ID)
		if err != nil {
			return outcome(err)
		}
		if len(some) == 0 {
			return failed
		}
		for _, one := range some {
			after = one
			sealed, err := reseal(one.ID, one.Sealed)
			if err != nil {
				failed = err
				continue
			}
			err = w.exec(ctx, "reseal the secret of a webhook endpoint", `update account.webhooks
				set secret = $3, secret_key = $4 where tenant_id = $1 and id = $2 and secret = $5`,
				one.TenantID, one.ID, sealed.Secret, sealed.Key, one.Secret)
			if err != nil {
				return err
			}
		}
	}
}

// WebhookStates counts the endpoints by state: enabled, failing, disabled.
func (w *Webhooks) WebhookStates(ctx context.Context) (map[string]int, error) {
	var enabled, failing, disabled int
	err := w.pool.QueryRow(ctx, `select count(*) filter (where enabled and failing_since is null),
		count(*) filter (where enabled and failing_since is not null), count(*) filter (where not enabled)
		from account.webhooks`).Scan(&enabled, &failing, &disabled)
	return map[string]int{"enabled": enabled, "failing": failing, "disabled": disabled}, outcome(err)
}
