package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
)

// Webhooks is the part of the Store that stores webhook endpoints and their deliveries.
type Webhooks struct{ *Store }

// Webhooks returns the part of the store for webhooks.
func (s *Store) Webhooks() *Webhooks { return &Webhooks{s} }

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

// DueWebhooks returns up to limit endpoints with pending deliveries, each with its workspace.
func (w *Webhooks) DueWebhooks(ctx context.Context, limit int) (map[uuid.UUID]uuid.UUID, error) {
	return w.workspacesByID(ctx, "select webhook, tenant from account.webhooks_due($1)", limit)
}

// Target implements delivery.Store.
func (w *Webhooks) Target(ctx context.Context, workspaceID, id uuid.UUID) (t delivery.Target, err error) {
	var permissions []string
	err = w.pool.QueryRow(ctx, `select `+webhook.Columns+`, w.secret, w.secret_key, w.position, w.failures,
		w.next_try_at <= now(), coalesce(account.webhook_standing(w.tenant_id, w.id), '{}'),
		case when w.former_until > now() then w.former_secret end, w.former_secret_key
		from account.webhooks w where w.tenant_id = $1 and w.id = $2`, workspaceID, id).
		Scan(append(t.Targets(), &t.Secret.Secret, &t.Secret.Key, &t.Position, &t.Failures, &t.Ready, &permissions,
			&t.Former.Secret, &t.Former.Key)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return delivery.Target{}, webhook.ErrNotFound
	}
	t.Permissions = perm.FromStrings(permissions)
	return t, outcome(err)
}

// Requested implements delivery.Store.
func (w *Webhooks) Requested(ctx context.Context, workspaceID, id uuid.UUID) (*webhook.Delivery, error) {
	return optional(oneRow(ctx, w.pool, pgx.ErrNoRows, webhook.ScanDelivery, "select "+webhook.DeliveryColumns+`
		from account.webhook_deliveries d where d.tenant_id = $1 and d.webhook_id = $2 and d.tried_at is null
		order by d.created_at limit 1`, workspaceID, id))
}

// Event implements delivery.Store.
func (w *Webhooks) Event(ctx context.Context, workspaceID uuid.UUID, sequence int64) (*delivery.Event, error) {
	return optional(oneRow(ctx, w.pool, pgx.ErrNoRows, scanEvent,
		"select sequence, type, data, created_at from account.webhook_event($1, $2)", workspaceID, sequence))
}

// Next implements delivery.Store.
func (w *Webhooks) Next(
	ctx context.Context, t delivery.Target, types []string,
) (e delivery.Event, found bool, err error) {
	rows, _ := w.pool.Query(ctx, `select sequence, coalesce(type, ''), data, created_at
		from account.next_webhook_event($1, $2, $3, $4, $5, $6)`,
		t.WorkspaceID, t.Position, t.CreatedAt.Add(-delivery.Lateness), types, w.steps.Number, w.steps.Examine)
	if e, err = pgx.CollectExactlyOneRow(rows, scanEvent); err != nil {
		return delivery.Event{}, false, outcome(fmt.Errorf("read the next event of a webhook endpoint: %w", err))
	}
	return e, e.Type != "", nil
}

// changeAtPosition changes an endpoint that is still at the position of t, and adds the attempt to the log. set are the
// changes in SQL, where $4 is the time of the database and args are the parameters from $5 on.
func (w *Webhooks) changeAtPosition(
	ctx context.Context, t delivery.Target, e delivery.Event, a delivery.Attempt, set string,
	args func(now time.Time) []any,
) error {
	return outcome(w.pool.transact(ctx, func(tx *transaction) {
		now := tx.now()
		changed := tx.exec("record a webhook delivery", "update account.webhooks set "+set+", tried_at = $4 "+
			"where tenant_id = $1 and id = $2 and position = $3",
			append([]any{t.WorkspaceID, t.ID, t.Position, now}, args(now)...)...)
		if changed > 0 { // else changed or deleted meanwhile
			tx.addAttempt(t, e, a, now)
		}
	}))
}

// now reads the time of the database. It is a separate statement, because a distributed database accepts times in
// changes only as parameters.
func (t *transaction) now() (now time.Time) {
	t.row("read the time of the database", "select clock_timestamp()").read(&now)
	return now
}

// addAttempt adds an attempt to send an event to the log.
func (t *transaction) addAttempt(to delivery.Target, e delivery.Event, a delivery.Attempt, now time.Time) {
	t.exec("record a webhook delivery", `insert into account.webhook_deliveries
		(tenant_id, id, webhook_id, cause, type, sequence, tried_at, status, problem, took_ms)
		values ($1, $2, $3, 'event', $4, $5, $6, nullif($7::integer, 0), nullif($8, ''), $9)`,
		to.WorkspaceID, uuid.Must(uuid.NewV7()), to.ID, e.Type, e.Sequence, now, a.Status, a.Problem,
		a.Took.Milliseconds())
}

// Finish implements delivery.Store.
func (w *Webhooks) Finish(ctx context.Context, workspaceID, id uuid.UUID, a delivery.Attempt) error {
	return outcome(w.pool.transact(ctx, func(t *transaction) {
		now := t.now()
		var endpoint uuid.UUID
		if t.row("record a webhook delivery", `
			update account.webhook_deliveries
			set tried_at = $5, status = nullif($2::integer, 0), problem = nullif($3, ''), took_ms = $4
			where tenant_id = $6 and id = $1 returning webhook_id`,
			id, a.Status, a.Problem, a.Took.Milliseconds(), now, workspaceID).find(&endpoint) {
			t.exec("record a webhook delivery", `update account.webhooks set tried_at = $3
				where tenant_id = $1 and id = $2`, workspaceID, endpoint, now)
		} // else deleted meanwhile
	}))
}

// Accept implements delivery.Store.
func (w *Webhooks) Accept(ctx context.Context, t delivery.Target, e delivery.Event, a delivery.Attempt) error {
	return w.changeAtPosition(ctx, t, e, a, "position = $5, failures = 0, failing_since = null, next_try_at = $4",
		func(time.Time) []any { return []any{e.Sequence} })
}

// Skip implements delivery.Store.
func (w *Webhooks) Skip(ctx context.Context, t delivery.Target, sequence int64) error {
	return w.exec(ctx, "record a webhook delivery", `update account.webhooks set position = $4
		where tenant_id = $1 and id = $2 and position = $3`, t.WorkspaceID, t.ID, t.Position, sequence)
}

// Retry implements delivery.Store. The wait ends at the latest when the endpoint is due to be disabled (W5).
func (w *Webhooks) Retry(
	ctx context.Context, t delivery.Target, e delivery.Event, a delivery.Attempt, wait time.Duration,
) error {
	return w.changeAtPosition(ctx, t, e, a, "failures = failures + 1, failing_since = $5, next_try_at = $6",
		func(now time.Time) []any {
			since := now
			if t.FailingSince != nil {
				since = *t.FailingSince
			}
			next := now.Add(wait)
			if end := since.Add(delivery.DisableAfter); end.Before(next) {
				next = end
			}
			return []any{since, next}
		})
}

// Disable implements delivery.Store.
func (w *Webhooks) Disable(
	ctx context.Context, t delivery.Target, reason webhook.Reason, e delivery.Event, a *delivery.Attempt, mail bool,
) error {
	return outcome(w.pool.transact(ctx, func(tx *transaction) {
		disabled := rowsOf(tx, "disable a webhook endpoint", webhook.Scan, `
			update account.webhooks w set enabled = false, reason = $3, disabled_at = now(),
				mail_due = $4, tried_at = now()
			where w.tenant_id = $5 and w.id = $1 and w.position = $2 and w.enabled returning `+webhook.Columns,
			t.ID, t.Position, reason, mail, t.WorkspaceID)
		if len(disabled) == 0 {
			return // changed or deleted meanwhile
		}
		if a != nil {
			tx.addAttempt(t, e, *a, tx.now())
		}
		tx.recordWebhook("webhook.disabled", disabled[0], nil)
	}))
}

// PublishWebhookKey makes authserver seal the secrets of new endpoints with the key.
func (w *Webhooks) PublishWebhookKey(ctx context.Context, publicKey []byte) error {
	return w.exec(ctx, "record a webhook delivery", `insert into account.webhook_keys (public_key) values ($1)
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
			err = w.exec(ctx, "record a webhook delivery", `update account.webhooks set secret = $3, secret_key = $4
				where tenant_id = $1 and id = $2 and secret = $5`,
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

// PersonalData implements delivery.Events.
func (w *Webhooks) PersonalData(
	ctx context.Context, workspaceID uuid.UUID, e delivery.Event,
) (p delivery.PersonalData, err error) {
	kind, _, _ := strings.Cut(e.Type, ".")
	if kind != "submission" && kind != "member" {
		return p, nil
	}
	var subject struct{ ID uuid.UUID }
	if err := json.Unmarshal(e.Data, &subject); err != nil {
		return p, fmt.Errorf("read the subject of an event: %w", err)
	}
	if kind == "member" {
		p.Member, err = optional(oneRow(ctx, w.pool, pgx.ErrNoRows, pgx.RowToStructByName[delivery.Member],
			"select $2::uuid as user_id, name, email from account.webhook_member($1, $2)", workspaceID, subject.ID))
		return p, err
	}
	p, err = w.submissionAndSupporter(ctx, workspaceID, subject.ID)
	if errors.Is(err, engage.ErrNoSubmission) || errors.Is(err, engage.ErrNoSupporter) {
		return delivery.PersonalData{}, nil // a supporter is erased with the submission
	}
	return p, err
}

// submissionAndSupporter reads a submission and its supporter. Both are nil while no member may read them, because the
// module is off (contract, section 6).
func (w *Webhooks) submissionAndSupporter(
	ctx context.Context, workspaceID, id uuid.UUID,
) (p delivery.PersonalData, err error) {
	open, err := oneRow(ctx, w.pool, pgx.ErrNoRows, pgx.RowTo[bool], `select exists (
		select from account.module_state($1, 'engage') m where m.enabled and m.provisioned)`, workspaceID)
	if err != nil || !open {
		return p, err
	}
	submission, err := w.Submission(ctx, workspaceID, id)
	p.Submission = &submission
	if err != nil || submission.SupporterID == nil {
		return p, err
	}
	supporter, err := w.Supporter(ctx, workspaceID, *submission.SupporterID)
	p.Supporter = &supporter
	return p, err
}
