package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

// An Endpoint is a URL to which events of a workspace are sent.
type Endpoint struct {
	ID          uuid.UUID
	WorkspaceID uuid.UUID
	Maker       // who added it or enabled it last; only events that this user may read are sent
	URL         string
	Types       []string // if AllTypes is true, those that its maker could read when they were chosen
	// AllTypes is whether it gets all events that its user may read, also of types that are added later.
	AllTypes bool
	// PersonalData is whether the user asked for the personal data of the events.
	PersonalData bool
	Enabled      bool
	Reason       Reason // why it is disabled, or ""
	DisabledAt   *time.Time
	FailingSince *time.Time
	TriedAt      *time.Time
	CreatedAt    time.Time
	Position     int64     // sequence of the last event that was accepted or skipped
	NextTryAt    time.Time // no event is sent before
}

// Wanted returns the types of the events that are sent if the user of the endpoint may read them.
func (e Endpoint) Wanted() []string {
	if e.AllTypes {
		return EventTypes()
	}
	return e.Types
}

// Retries reports whether the event of a delivery is sent again at NextTryAt.
func (e Endpoint) Retries(d Delivery) bool {
	failed := d.TriedAt != nil && !d.Accepted()
	return e.Enabled && failed && d.Cause == ByEvent && *d.Sequence > e.Position
}

// A Maker is the user who adds or enables an endpoint.
type Maker struct {
	UserID uuid.UUID
	// The credential with which the user did it, or both nil on a page. The endpoint ends with its credential: nothing
	// is sent once that is revoked, replaced or expired (contract, section 6a).
	TokenID *uuid.UUID // a personal access token
	GrantID *uuid.UUID // the grant of an access token
}

// A Cause is the reason for a delivery.
type Cause string

// The causes.
const (
	ByEvent  Cause = "event"
	ByResend Cause = "resend"
	ByTest   Cause = "test"
)

// A Delivery is an attempt to send an event to an endpoint, or a requested test or resend that is pending.
type Delivery struct {
	ID        uuid.UUID
	CreatedAt time.Time
	Cause     Cause
	Type      string
	Sequence  *int64     // nil for a test
	TriedAt   *time.Time // nil while it is pending
	Status    *int       // of the response; nil if there was none
	Problem   string     // why it was not accepted, or ""
	Took      time.Duration
	SentAt    *time.Time // as the request says; nil if none was sent, or by an earlier release
	Signature string     // of the request
	Personal  bool       // the request had personal data
	Response  []byte     // up to MaxResponse bytes of the body; nil if the endpoint gets personal data
}

// Accepted reports whether the endpoint accepted the delivery.
func (d Delivery) Accepted() bool { return d.TriedAt != nil && d.Problem == "" }

// ReadableWith reports whether a user with the permissions held may read what was sent, and the response.
func (d Delivery) ReadableWith(held perm.Set) bool {
	need, known := Need(d.Type)
	return d.Type == TestType || (known && held.Has(need))
}

// A Querier runs statements, in a transaction or not.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Columns are the columns of account.webhooks w that Scan reads.
const Columns = `w.id, w.tenant_id, w.user_id, w.url, w.types, coalesce(w.personal_data_for = w.user_id, false),
	w.enabled, coalesce(w.reason, ''), w.disabled_at, w.failing_since, w.tried_at, w.created_at,
	w.token_id, w.grant_id, w.all_types, w.position, w.next_try_at`

// Scan reads Columns.
func Scan(row pgx.CollectableRow) (e Endpoint, err error) {
	err = row.Scan(e.Targets()...)
	return e, err
}

// Targets returns the destinations of a scan of Columns.
func (e *Endpoint) Targets() []any {
	return []any{&e.ID, &e.WorkspaceID, &e.UserID, &e.URL, &e.Types, &e.PersonalData, &e.Enabled, &e.Reason,
		&e.DisabledAt, &e.FailingSince, &e.TriedAt, &e.CreatedAt, &e.TokenID, &e.GrantID, &e.AllTypes,
		&e.Position, &e.NextTryAt}
}

// DeliveryColumns are the columns of account.webhook_deliveries d that ScanDelivery reads.
const DeliveryColumns = `d.id, d.created_at, d.cause, d.type, d.sequence, d.tried_at, d.status, coalesce(d.problem, ''),
	coalesce(d.took_ms, 0), d.sent_at, coalesce(d.signature, ''), d.personal, d.response`

// ScanDelivery reads DeliveryColumns.
func ScanDelivery(row pgx.CollectableRow) (d Delivery, err error) {
	var milliseconds int
	err = row.Scan(&d.ID, &d.CreatedAt, &d.Cause, &d.Type, &d.Sequence, &d.TriedAt, &d.Status, &d.Problem,
		&milliseconds, &d.SentAt, &d.Signature, &d.Personal, &d.Response)
	d.Took = time.Duration(milliseconds) * time.Millisecond
	return d, err
}

// Add stores an endpoint. Events that happen after that are sent to it. It returns ErrTooMany or ErrTaken.
func Add(ctx context.Context, q Querier, e Endpoint, secret Sealed) error {
	var result string
	err := q.QueryRow(ctx, "select account.add_webhook($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)", e.ID,
		e.WorkspaceID, e.UserID, e.URL, e.Types, secret.Secret, secret.Key, MaxEndpoints, e.TokenID, e.GrantID,
		e.AllTypes).Scan(&result)
	switch {
	case err != nil:
		return fmt.Errorf("add a webhook endpoint: %w", err)
	case result == "full":
		return ErrTooMany
	case result == "exists":
		return ErrTaken
	case e.PersonalData:
		_, err = SetPersonalData(ctx, q, e.WorkspaceID, e.ID, e.UserID, true)
		return err
	}
	return nil
}

// SetPersonalData changes whether the personal data of events is sent to an endpoint. To include it, user becomes the
// user of the endpoint, which then gets the events that this user may read. It returns ErrNotFound.
func SetPersonalData(ctx context.Context, q Querier, workspaceID, id, user uuid.UUID, include bool) (Endpoint, error) {
	if !include {
		return one(ctx, q, `update account.webhooks w set personal_data_for = null
			where w.tenant_id = $1 and w.id = $2 returning `+Columns, workspaceID, id)
	}
	return one(ctx, q, `update account.webhooks w set personal_data_for = $3, user_id = $3
		where w.tenant_id = $1 and w.id = $2 returning `+Columns, workspaceID, id, user)
}

// SetTypes changes which events are sent to an endpoint. by becomes its user, as when it is enabled on its page. It
// returns ErrNotFound.
func SetTypes(ctx context.Context, q Querier, e Endpoint, by uuid.UUID) (Endpoint, error) {
	return one(ctx, q, `update account.webhooks w set types = $4, all_types = $5, user_id = $3, token_id = null,
		grant_id = null, personal_data_for = case when w.user_id = $3 then w.personal_data_for end
		where w.tenant_id = $1 and w.id = $2 returning `+Columns, e.WorkspaceID, e.ID, by, e.Types, e.AllTypes)
}

const findSQL = "select " + Columns + " from account.webhooks w where w.tenant_id = $1 and w.id = $2"

// Find reads an endpoint of the workspace, or returns ErrNotFound.
func Find(ctx context.Context, q Querier, workspaceID, id uuid.UUID) (Endpoint, error) {
	return one(ctx, q, findSQL, workspaceID, id)
}

// Lock is Find, and keeps others from changing the endpoint until the transaction ends.
func Lock(ctx context.Context, q Querier, workspaceID, id uuid.UUID) (Endpoint, error) {
	return one(ctx, q, findSQL+" for no key update", workspaceID, id)
}

// Delete deletes an endpoint of the workspace and returns it, or returns ErrNotFound.
func Delete(ctx context.Context, q Querier, workspaceID, id uuid.UUID) (Endpoint, error) {
	return one(ctx, q, "delete from account.webhooks w where w.tenant_id = $1 and w.id = $2 returning "+Columns,
		workspaceID, id)
}

// Enable enables an endpoint, which then gets the events that it missed and that the user may read, without personal
// data if another user asked for it. The endpoint ends with the credential of by, unless the same user made it on a
// page. It returns ErrNotFound.
func Enable(ctx context.Context, q Querier, workspaceID, id uuid.UUID, by Maker) (Endpoint, error) {
	const onPage = "w.user_id = $3 and w.token_id is null and w.grant_id is null"
	return one(ctx, q, `update account.webhooks w set enabled = true, user_id = $3, reason = null, disabled_at = null,
		token_id = case when not (`+onPage+`) then $4::uuid end,
		grant_id = case when not (`+onPage+`) then $5::uuid end,
		personal_data_for = case when w.user_id = $3 then w.personal_data_for end,
		mail_due = false, failures = 0, failing_since = null, next_try_at = now()
		where w.tenant_id = $1 and w.id = $2 returning `+Columns, workspaceID, id, by.UserID, by.TokenID, by.GrantID)
}

// Disable disables an endpoint at a user's request. It returns ErrNotFound.
func Disable(ctx context.Context, q Querier, workspaceID, id uuid.UUID) (Endpoint, error) {
	var now time.Time
	if err := q.QueryRow(ctx, "select now()").Scan(&now); err != nil {
		return Endpoint{}, fmt.Errorf("read the time of the database: %w", err)
	}
	return one(ctx, q, `update account.webhooks w set enabled = false, reason = coalesce(w.reason, 'user'),
		disabled_at = coalesce(w.disabled_at, $3) where w.tenant_id = $1 and w.id = $2 returning `+Columns,
		workspaceID, id, now)
}

// ReplaceSecret replaces the secret of an endpoint. For overlap, events are also signed with the previous secret.
// replacement identifies the request. ReplaceSecret returns ErrNotFound, or ErrReplaced if the same request has already
// replaced the secret.
func ReplaceSecret(
	ctx context.Context, q Querier, workspaceID, id, replacement uuid.UUID, sealed Sealed, overlap time.Duration,
) (Endpoint, error) {
	e, err := one(ctx, q, `update account.webhooks w set secret_id = $3, secret = $4, secret_key = $5,
		former_secret = w.secret, former_secret_key = w.secret_key, former_until = now() + $6::interval
		where w.tenant_id = $1 and w.id = $2 and w.secret_id is distinct from $3 returning `+Columns,
		workspaceID, id, replacement, sealed.Secret, sealed.Key, overlap)
	if errors.Is(err, ErrNotFound) {
		if _, err := Find(ctx, q, workspaceID, id); err != nil {
			return Endpoint{}, err
		}
		return Endpoint{}, ErrReplaced
	}
	return e, err
}

// RequestTest queues a test event for an endpoint, even if it is disabled. It returns ErrNotFound, ErrWaiting or
// ErrTests.
func RequestTest(ctx context.Context, q Querier, workspaceID, id, delivery uuid.UUID) error {
	if _, err := Find(ctx, q, workspaceID, id); err != nil {
		return err
	}
	var tests int
	err := q.QueryRow(ctx, `select count(*) from account.webhook_deliveries d where d.tenant_id = $3
		and d.webhook_id = $1 and d.created_at > now() - interval '1 hour' and d.cause = 'test' and d.id <> $2`,
		id, delivery, workspaceID).Scan(&tests)
	switch {
	case err != nil:
		return fmt.Errorf("count the tests of a webhook endpoint: %w", err)
	case tests >= MaxTests:
		return ErrTests
	}
	return request(ctx, q, workspaceID, delivery, id, ByTest, TestType, nil)
}

// RequestResend queues the event of an earlier delivery again. need checks whether the user may read events of its
// type. RequestResend returns ErrNotFound, ErrDisabled, ErrWaiting or ErrTests, or the error of need.
func RequestResend(
	ctx context.Context, q Querier, workspaceID, id, former, delivery uuid.UUID, need func(eventType string) error,
) error {
	e, err := Find(ctx, q, workspaceID, id)
	if err != nil {
		return err
	}
	d, err := FindDelivery(ctx, q, workspaceID, id, former)
	switch {
	case err != nil:
		return err
	case d.Sequence == nil:
		return RequestTest(ctx, q, workspaceID, id, delivery)
	case !e.Enabled:
		return ErrDisabled
	}
	if err := need(d.Type); err != nil {
		return err
	}
	return request(ctx, q, workspaceID, delivery, id, ByResend, d.Type, d.Sequence)
}

// FindDelivery reads a delivery to an endpoint of the workspace, or returns ErrNotFound.
func FindDelivery(ctx context.Context, q Querier, workspaceID, endpoint, id uuid.UUID) (Delivery, error) {
	return oneOf(ctx, q, ScanDelivery, "select "+DeliveryColumns+` from account.webhook_deliveries d
		where d.tenant_id = $1 and d.webhook_id = $2 and d.id = $3`, workspaceID, endpoint, id)
}

func request(
	ctx context.Context, q Querier, workspaceID, delivery, endpoint uuid.UUID, cause Cause, eventType string,
	sequence *int64,
) error {
	tag, err := q.Exec(ctx, `insert into account.webhook_deliveries (tenant_id, id, webhook_id, cause, type, sequence)
		select $1, $2, $3, $4, $5, $6
		where (select count(*) from account.webhook_deliveries d
			where d.tenant_id = $1 and d.webhook_id = $3 and d.tried_at is null) < $7
		on conflict (tenant_id, id) do nothing`,
		workspaceID, delivery, endpoint, cause, eventType, sequence, MaxWaiting)
	if err != nil {
		return fmt.Errorf("request a webhook delivery: %w", err)
	}
	if tag.RowsAffected() > 0 {
		return nil
	}
	var repeated bool // the same form was sent again
	err = q.QueryRow(ctx, `select exists (
		select from account.webhook_deliveries where tenant_id = $1 and id = $2)`, workspaceID, delivery).
		Scan(&repeated)
	switch {
	case err != nil:
		return fmt.Errorf("request a webhook delivery: %w", err)
	case !repeated:
		return ErrWaiting
	}
	return nil
}

func one(ctx context.Context, q Querier, sql string, args ...any) (Endpoint, error) {
	return oneOf(ctx, q, Scan, sql, args...)
}

func oneOf[T any](ctx context.Context, q Querier, scan pgx.RowToFunc[T], sql string, args ...any) (found T, err error) {
	rows, _ := q.Query(ctx, sql, args...) // the rows have the error
	found, err = pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		return found, ErrNotFound
	}
	if err != nil {
		return found, fmt.Errorf("read a webhook endpoint: %w", err)
	}
	return found, nil
}
