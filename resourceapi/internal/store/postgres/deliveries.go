package postgres

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/database/pg"
)

// A step is what a transaction does for one endpoint: queue adds statements to a batch. at is the time of the database,
// because a distributed database accepts times in changes only as parameters.
type step struct {
	changed uuid.UUID // the endpoint, or uuid.Nil if the step only reads; it gets no time
	queue   func(batch *pgx.Batch, at time.Time)
}

// maxSteps is how many endpoints share a transaction. Postgres commits all of them at once.
const maxSteps = 64

// Webhooks returns the part of the store for webhooks.
func (s *Store) Webhooks() *Webhooks {
	w := &Webhooks{Store: s}
	for _, steps := range []*pg.Batcher[step, error]{&w.changes, &w.looks} {
		steps.Answer, steps.Most, steps.AtOnce = w.sendSteps, maxSteps, 2
		steps.Within, steps.Stay = s.pool.timeout, true
	}
	return w
}

// step runs statements of one endpoint in a transaction, which those of other endpoints may share. Those that only read
// do not wait for changes.
func (w *Webhooks) step(ctx context.Context, what string, changed uuid.UUID, queue func(*pgx.Batch, time.Time)) error {
	steps := &w.changes
	if changed == uuid.Nil {
		steps = &w.looks
	}
	failed, err := steps.Do(context.WithoutCancel(ctx), step{changed, queue})
	if err = cmp.Or(err, failed); err != nil {
		return outcome(fmt.Errorf("%s: %w", what, err))
	}
	return nil
}

// sendSteps sends the statements of all in one transaction and, if Postgres refuses one, those of each in one of its
// own, with a time limit of its own: the row of one endpoint may be locked, or its statements may take too long.
func (w *Webhooks) sendSteps(ctx context.Context, all []step) ([]error, error) {
	failed := make([]error, len(all))
	err := w.sendStep(ctx, all)
	if _, refused := errors.AsType[*pgconn.PgError](err); !refused || len(all) == 1 {
		return failed, err
	}
	for i := range all {
		own, cancel := w.pool.bounded(ctx)
		failed[i] = w.sendStep(own, all[i:i+1])
		cancel()
	}
	return failed, nil
}

// sendStep sends the statements of all in the order of the endpoints: two transactions lock their rows in one order.
func (w *Webhooks) sendStep(ctx context.Context, all []step) error {
	var at time.Time
	if all[0].changed != uuid.Nil {
		if err := w.pool.Pool.QueryRow(ctx, "select clock_timestamp()").Scan(&at); err != nil {
			return err
		}
	}
	batch := &pgx.Batch{}
	for _, one := range slices.SortedStableFunc(slices.Values(all), func(a, b step) int {
		return bytes.Compare(a.changed[:], b.changed[:])
	}) {
		one.queue(batch, at)
	}
	return w.pool.SendBatch(ctx, batch).Close()
}

// WorkspacesWithWebhooks implements worker.Webhooks.
func (w *Webhooks) WorkspacesWithWebhooks(
	ctx context.Context, after uuid.UUID, most int,
) (all, unread []uuid.UUID, err error) {
	const text = "select id from account.workspaces_with_webhooks($1, $2) id"
	all, err = allRows(ctx, w.pool, pgx.RowTo[uuid.UUID], text, after, most)
	if err == nil {
		unread, err = allRows(ctx, w.pool, pgx.RowTo[uuid.UUID], "select id from account.workspaces_unread($1) id", all)
	}
	return all, unread, outcome(err)
}

// ClaimWebhooks implements worker.Webhooks. It adds the time limit of a statement: the last one may take that long.
func (w *Webhooks) ClaimWebhooks(
	ctx context.Context, workspaces []uuid.UUID, lasts time.Duration, limit, limitFailing int,
) ([]delivery.Claim, error) {
	claimed, err := allRows(ctx, w.pool, pgx.RowToStructByPos[delivery.Claim],
		"select webhook, tenant, failing, until from account.claim_webhooks($1, $2, $3, $4)",
		workspaces, lasts+w.pool.timeout, limit, limitFailing)
	return claimed, outcome(err)
}

// ReleaseWebhook implements worker.Webhooks.
func (w *Webhooks) ReleaseWebhook(ctx context.Context, c delivery.Claim) error {
	return w.step(ctx, "release a webhook endpoint", c.ID, func(batch *pgx.Batch, _ time.Time) {
		batch.Queue(`update account.webhooks set claimed_until = '-infinity'
			where tenant_id = $1 and id = $2 and claimed_until = $3`, c.WorkspaceID, c.ID, c.Until)
	})
}

const targetSQL = "select " + webhook.Columns + `, w.secret, w.secret_key, w.failures,
	w.next_try_at <= now(), coalesce(account.webhook_standing(w.tenant_id, w.id), '{}'),
	case when w.former_until > now() then w.former_secret end, w.former_secret_key, exists (
		select from account.webhook_deliveries d
		where d.tenant_id = w.tenant_id and d.webhook_id = w.id and d.tried_at is null)
	from account.webhooks w where w.tenant_id = $1 and w.id = $2`

// A target is the result of targetSQL, once the batch was sent.
type target struct {
	delivery.Target
	found bool
}

func (t *target) queue(batch *pgx.Batch, workspaceID, id uuid.UUID) {
	batch.Queue(targetSQL, workspaceID, id).QueryRow(func(row pgx.Row) error {
		*t = target{}
		var permissions []string
		err := row.Scan(append(t.Targets(), &t.Secret.Secret, &t.Secret.Key, &t.Failures, &t.Ready,
			&permissions, &t.Former.Secret, &t.Former.Key, &t.Requested)...)
		t.Permissions, t.found = perm.FromStrings(permissions), err == nil
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
}

// result returns webhook.ErrNotFound if the endpoint was deleted.
func (t *target) result(err error) (delivery.Target, error) {
	if err == nil && !t.found {
		err = webhook.ErrNotFound
	}
	return t.Target, err
}

// Target implements delivery.Store.
func (w *Webhooks) Target(ctx context.Context, workspaceID, id uuid.UUID) (delivery.Target, error) {
	var t target
	return t.result(w.step(ctx, "read a webhook endpoint", uuid.Nil, func(batch *pgx.Batch, _ time.Time) {
		t.queue(batch, workspaceID, id)
	}))
}

// Requested implements delivery.Store.
func (w *Webhooks) Requested(ctx context.Context, workspaceID, id uuid.UUID) (*webhook.Delivery, error) {
	return optional(oneRow(ctx, w.pool, pgx.ErrNoRows, webhook.ScanDelivery, "select "+webhook.DeliveryColumns+`
		from account.webhook_deliveries d where d.tenant_id = $1 and d.webhook_id = $2 and d.tried_at is null
		order by d.created_at limit 1`, workspaceID, id))
}

// Event implements delivery.Events.
func (w *Webhooks) Event(ctx context.Context, workspaceID uuid.UUID, sequence int64) (*delivery.Event, error) {
	return optional(oneRow(ctx, w.pool, pgx.ErrNoRows, scanEvent,
		"select sequence, type, data, created_at from account.webhook_event($1, $2)", workspaceID, sequence))
}

// eventsAtOnce is how many events of an endpoint are read at once.
const eventsAtOnce = 50

// Next implements delivery.Events.
func (w *Webhooks) Next(
	ctx context.Context, t delivery.Target, types []string,
) (some []delivery.Event, end int64, more bool, err error) {
	err = w.step(ctx, "read the next events of an endpoint", uuid.Nil, func(batch *pgx.Batch, _ time.Time) {
		batch.Queue(`select sequence, coalesce(type, ''), data, created_at
			from account.webhook_events($1, $2, $3, $4, $5, $6)`, t.WorkspaceID, t.Position,
			t.CreatedAt.Add(-delivery.Lateness), types, eventsAtOnce, w.Store.steps.Examine).
			Query(func(rows pgx.Rows) (err error) {
				some, err = pgx.CollectRows(rows, scanEvent)
				return err
			})
	})
	if last := len(some) - 1; last >= 0 && some[last].Type == "" {
		return some[:last], some[last].Sequence, false, err
	}
	return some, 0, true, err
}

// queueChange changes an endpoint that is still at the position of t and adds the attempt to the log, or does neither.
// set are the changes in SQL, where $7 is the time of the database and args are the parameters from $15 on.
func queueChange(
	batch *pgx.Batch, t delivery.Target, e delivery.Event, a delivery.Attempt, set string, at time.Time, args ...any,
) {
	batch.Queue("with w as (update account.webhooks set "+set+`, tried_at = $7
		where tenant_id = $1 and id = $2 and position = $3 returning tenant_id, id) `+attemptSQL+"w",
		append(attemptArgs(t, e, a, at), args...)...)
}

// attemptSQL adds an attempt to send an event to the log. The caller appends what to select the endpoint from, as w.
const attemptSQL = `insert into account.webhook_deliveries
	(tenant_id, id, webhook_id, cause, type, sequence, tried_at, status, problem, took_ms, sent_at, signature, personal,
		response)
	select w.tenant_id, $4, w.id, 'event', $5, $6, $7, nullif($8::integer, 0), nullif($9, ''), $10, $11,
		nullif($12, ''), $13, $14 from `

func attemptArgs(t delivery.Target, e delivery.Event, a delivery.Attempt, at time.Time) []any {
	return []any{t.WorkspaceID, t.ID, t.Position, uuid.Must(uuid.NewV7()), e.Type, e.Sequence, at, a.Status, a.Problem,
		a.Took.Milliseconds(), a.SentAt, a.Signature, a.Personal, a.Response}
}

const recordDelivery = "record a webhook delivery"

// Finish implements delivery.Store. It locks the endpoint first, as all who change or delete one do.
func (w *Webhooks) Finish(ctx context.Context, t delivery.Target, id uuid.UUID, a delivery.Attempt) error {
	return w.step(ctx, recordDelivery, t.ID, func(batch *pgx.Batch, at time.Time) {
		batch.Queue("update account.webhooks set tried_at = $3 where tenant_id = $1 and id = $2",
			t.WorkspaceID, t.ID, at)
		batch.Queue(`update account.webhook_deliveries
			set tried_at = $3, status = nullif($4::integer, 0), problem = nullif($5, ''), took_ms = $6,
				sent_at = $7, signature = nullif($8, ''), personal = $9, response = $10
			where tenant_id = $1 and id = $2`, t.WorkspaceID, id, at, a.Status, a.Problem, a.Took.Milliseconds(),
			a.SentAt, a.Signature, a.Personal, a.Response)
	})
}

// Accept implements delivery.Store.
func (w *Webhooks) Accept(
	ctx context.Context, t delivery.Target, e delivery.Event, a delivery.Attempt,
) (delivery.Target, error) {
	var next target
	return next.result(w.step(ctx, recordDelivery, t.ID, func(batch *pgx.Batch, at time.Time) {
		const set = "position = $15, failures = 0, failing_since = null, next_try_at = $7, slow = $16"
		queueChange(batch, t, e, a, set, at, e.Sequence, a.Took > time.Second)
		next.queue(batch, t.WorkspaceID, t.ID)
	}))
}

// Skip implements delivery.Store.
func (w *Webhooks) Skip(ctx context.Context, t delivery.Target, sequence int64) error {
	return w.step(ctx, recordDelivery, t.ID, func(batch *pgx.Batch, _ time.Time) {
		batch.Queue(`update account.webhooks set position = $4 where tenant_id = $1 and id = $2 and position = $3`,
			t.WorkspaceID, t.ID, t.Position, sequence)
	})
}

// Retry implements delivery.Store. The wait ends at the latest when the endpoint is due to be disabled (W5).
func (w *Webhooks) Retry(
	ctx context.Context, t delivery.Target, e delivery.Event, a delivery.Attempt, wait time.Duration,
) error {
	return w.step(ctx, recordDelivery, t.ID, func(batch *pgx.Batch, at time.Time) {
		since, next := at, at.Add(wait)
		if t.FailingSince != nil {
			since = *t.FailingSince
		}
		if end := since.Add(delivery.DisableAfter); end.Before(next) {
			next = end
		}
		const set = "failures = failures + 1, failing_since = $15, next_try_at = $16"
		queueChange(batch, t, e, a, set, at, since, next)
	})
}

// now reads the time of the database. It is a separate statement, because a distributed database accepts times in
// changes only as parameters.
func (t *transaction) now() (now time.Time) {
	t.row("read the time of the database", "select clock_timestamp()").read(&now)
	return now
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
			tx.exec(recordDelivery, attemptSQL+`account.webhooks w
				where w.tenant_id = $1 and w.id = $2 and w.position = $3`, attemptArgs(t, e, *a, tx.now())...)
		}
		tx.recordWebhook("webhook.disabled", disabled[0], nil)
	}))
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
