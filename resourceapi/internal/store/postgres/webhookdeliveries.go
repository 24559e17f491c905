package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/webhook"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/event"
)

// DueWebhooks returns up to limit endpoints with pending deliveries, each with its workspace.
func (h *Webhooks) DueWebhooks(ctx context.Context, limit int) (map[uuid.UUID]uuid.UUID, error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	rows, err := h.pool.Query(ctx, "select webhook, tenant from account.webhooks_due($1)", limit)
	if err != nil {
		return nil, outcome(err)
	}
	due := map[uuid.UUID]uuid.UUID{}
	var id, workspaceID uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&id, &workspaceID}, func() error {
		due[id] = workspaceID
		return nil
	})
	return due, outcome(err)
}

// Target implements delivery.Store.
func (h *Webhooks) Target(ctx context.Context, id uuid.UUID) (t delivery.Target, err error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	var permissions []string
	err = h.pool.QueryRow(ctx, `select `+webhook.Columns+`, w.secret, w.secret_key, w.position, w.failures,
		w.next_try_at <= now(), coalesce(account.webhook_standing(w.id), '{}'),
		case when w.former_until > now() then w.former_secret end, w.former_secret_key
		from account.webhooks w where w.id = $1`, id).
		Scan(append(t.Targets(), &t.Secret.Secret, &t.Secret.Key, &t.Position, &t.Failures, &t.Ready, &permissions,
			&t.Former.Secret, &t.Former.Key)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return delivery.Target{}, webhook.ErrNotFound
	}
	t.Permissions = perm.FromStrings(permissions)
	return t, outcome(err)
}

// Requested implements delivery.Store.
func (h *Webhooks) Requested(ctx context.Context, id uuid.UUID) (d webhook.Delivery, waits bool, err error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	rows, err := h.pool.Query(ctx, "select "+webhook.DeliveryColumns+` from account.webhook_deliveries d
		where d.webhook_id = $1 and d.tried_at is null order by d.created_at limit 1`, id)
	if err != nil {
		return webhook.Delivery{}, false, outcome(err)
	}
	d, err = pgx.CollectExactlyOneRow(rows, webhook.ScanDelivery)
	if errors.Is(err, pgx.ErrNoRows) {
		return webhook.Delivery{}, false, nil
	}
	return d, err == nil, outcome(err)
}

// Event implements delivery.Store.
func (h *Webhooks) Event(
	ctx context.Context, workspaceID uuid.UUID, sequence int64,
) (e event.Event, stored bool, err error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	err = h.pool.QueryRow(ctx, "select sequence, type, data, created_at from account.webhook_event($1, $2)",
		workspaceID, sequence).Scan(&e.Sequence, &e.Type, &e.Data, &e.At)
	if errors.Is(err, pgx.ErrNoRows) {
		return event.Event{}, false, nil
	}
	return e, err == nil, outcome(err)
}

// Next implements delivery.Store.
func (h *Webhooks) Next(
	ctx context.Context, workspaceID uuid.UUID, after int64, types []string,
) (e event.Event, found bool, last int64, err error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	var sequence *int64
	var eventType *string
	var at *time.Time
	err = h.pool.QueryRow(ctx, `select sequence, type, data, created_at, last
		from account.next_webhook_event($1, $2, $3)`, workspaceID, after, types).
		Scan(&sequence, &eventType, &e.Data, &at, &last)
	if err != nil {
		return event.Event{}, false, 0, outcome(fmt.Errorf("read the next event of a webhook endpoint: %w", err))
	}
	if sequence == nil {
		return event.Event{}, false, last, nil
	}
	e.Sequence, e.Type, e.At = *sequence, *eventType, *at
	return e, true, last, nil
}

// attemptSQL adds an attempt to send an event to the log, if the preceding CTE "moved" changed the endpoint.
// attemptArgs returns its parameters.
const attemptSQL = ` insert into account.webhook_deliveries
	(id, webhook_id, cause, type, sequence, tried_at, status, problem, took_ms)
	select $3, moved.id, 'event', $4, $5, clock_timestamp(), $6, $7, $8 from moved`

func attemptArgs(t delivery.Target, e event.Event, a delivery.Attempt) []any {
	return []any{
		t.ID,
		t.Position,
		identity.New(),
		e.Type,
		e.Sequence,
		statusOf(a),
		problemOf(a),
		a.Took.Milliseconds(),
	}
}

func statusOf(a delivery.Attempt) *int {
	if a.Status == 0 {
		return nil
	}
	return &a.Status
}

func problemOf(a delivery.Attempt) *string {
	if a.Problem == "" {
		return nil
	}
	return &a.Problem
}

// Finish implements delivery.Store.
func (h *Webhooks) Finish(ctx context.Context, id uuid.UUID, a delivery.Attempt) error {
	return h.exec(ctx, `with tried as (
			update account.webhook_deliveries set tried_at = clock_timestamp(), status = $2, problem = $3, took_ms = $4
			where id = $1 returning webhook_id)
		update account.webhooks w set tried_at = now() from tried where w.id = tried.webhook_id`,
		id, statusOf(a), problemOf(a), a.Took.Milliseconds())
}

// Accept implements delivery.Store.
func (h *Webhooks) Accept(ctx context.Context, t delivery.Target, e event.Event, a delivery.Attempt) error {
	return h.exec(ctx, `with moved as (
			update account.webhooks set position = $5, failures = 0, failing_since = null, next_try_at = now(),
				tried_at = now()
			where id = $1 and position = $2 returning id)`+attemptSQL, attemptArgs(t, e, a)...)
}

// Skip implements delivery.Store.
func (h *Webhooks) Skip(ctx context.Context, t delivery.Target, sequence int64) error {
	return h.exec(ctx, "update account.webhooks set position = $3 where id = $1 and position = $2",
		t.ID, t.Position, sequence)
}

// Retry implements delivery.Store. The wait ends at the latest when the endpoint is due to be disabled (W5).
func (h *Webhooks) Retry(
	ctx context.Context, t delivery.Target, e event.Event, a delivery.Attempt, wait time.Duration,
) error {
	return h.exec(ctx, `with moved as (
			update account.webhooks set failures = failures + 1, failing_since = coalesce(failing_since, now()),
				tried_at = now(), next_try_at = least(now() + make_interval(secs => $9),
					coalesce(failing_since, now()) + make_interval(secs => $10))
			where id = $1 and position = $2 returning id)`+attemptSQL,
		append(attemptArgs(t, e, a), wait.Seconds(), delivery.DisableAfter.Seconds())...)
}

// Disable implements delivery.Store.
func (h *Webhooks) Disable(
	ctx context.Context, t delivery.Target, reason webhook.Reason, e event.Event, a *delivery.Attempt, mail bool,
) error {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	return outcome(pgx.BeginFunc(ctx, h.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `update account.webhooks w set enabled = false, reason = $3, disabled_at = now(),
				mail_due = $4, tried_at = now()
			where w.id = $1 and w.position = $2 and w.enabled returning `+webhook.Columns,
			t.ID, t.Position, reason, mail)
		if err != nil {
			return fmt.Errorf("disable a webhook endpoint: %w", err)
		}
		disabled, err := pgx.CollectExactlyOneRow(rows, webhook.Scan)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // changed or deleted meanwhile
		}
		if err != nil {
			return fmt.Errorf("disable a webhook endpoint: %w", err)
		}
		if a != nil {
			_, err = tx.Exec(ctx, `with moved as (select id from account.webhooks where id = $1 and position = $2)`+
				attemptSQL, attemptArgs(t, e, *a)...)
			if err != nil {
				return fmt.Errorf("record a webhook delivery: %w", err)
			}
		}
		return recordWebhook(ctx, tx, "webhook.disabled", disabled, nil)
	}))
}

// PublishWebhookKey makes authserver seal the secrets of new endpoints with the key.
func (h *Webhooks) PublishWebhookKey(ctx context.Context, publicKey []byte) error {
	return h.exec(ctx, `insert into account.webhook_keys (public_key) values ($1)
		on conflict (public_key) do update set published_at = clock_timestamp()`, publicKey)
}

// ResealWebhooks replaces secrets that are sealed with another key, in batches. It does not change secrets for which
// reseal returns an error, and returns the last of these errors.
func (h *Webhooks) ResealWebhooks(
	ctx context.Context,
	publicKey []byte,
	reseal func(id uuid.UUID, secret webhook.Sealed) (webhook.Sealed, error),
) (failed error) {
	type row struct {
		id     uuid.UUID
		sealed webhook.Sealed
	}
	for after := uuid.Nil; ; {
		rows, err := h.pool.Query(ctx, `select id, secret, secret_key from account.webhooks
			where secret_key <> $1 and id > $2 order by id limit 100`, publicKey, after)
		if err != nil {
			return outcome(err)
		}
		some, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (found row, err error) {
			return found, r.Scan(&found.id, &found.sealed.Secret, &found.sealed.Key)
		})
		if err != nil {
			return outcome(err)
		}
		if len(some) == 0 {
			return failed
		}
		for _, one := range some {
			after = one.id
			sealed, err := reseal(one.id, one.sealed)
			if err != nil {
				failed = err
				continue
			}
			err = h.exec(ctx, "update account.webhooks set secret = $2, secret_key = $3 where id = $1 and secret = $4",
				one.id, sealed.Secret, sealed.Key, one.sealed.Secret)
			if err != nil {
				return err
			}
		}
	}
}

// WebhookStates counts the endpoints by state: enabled, failing, disabled.
func (h *Webhooks) WebhookStates(ctx context.Context) (map[string]int, error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	var enabled, failing, disabled int
	err := h.pool.QueryRow(ctx, `select count(*) filter (where enabled and failing_since is null),
		count(*) filter (where enabled and failing_since is not null), count(*) filter (where not enabled)
		from account.webhooks`).Scan(&enabled, &failing, &disabled)
	return map[string]int{"enabled": enabled, "failing": failing, "disabled": disabled}, outcome(err)
}

func (h *Webhooks) exec(ctx context.Context, sql string, args ...any) error {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	if _, err := h.pool.Exec(ctx, sql, args...); err != nil {
		return outcome(fmt.Errorf("record a webhook delivery: %w", err))
	}
	return nil
}
