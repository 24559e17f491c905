package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

// Engage is the part of the Store for forms, submissions and supporters.
type Engage struct {
	*Store
	queue Queue
}

// Engage returns the Engage part of the store. The jobs of submissions are added to queue.
func (s *Store) Engage(queue Queue) *Engage { return &Engage{s, queue} }

// FirstAnswer returns the answer stored under the key, without claiming it. The error may be rest.ErrReused.
func (e *Engage) FirstAnswer(ctx context.Context, key rest.Key) (answer rest.Answer, known bool, err error) {
	var same bool
	err = e.pool.QueryRow(ctx, `
		select body_hash = $5, status, coalesce(etag, ''), coalesce(location, ''), body
		from resource.idempotency_keys
		where tenant_id = $1 and user_id = $2 and route = $3 and key = $4
			and created_at > now() - make_interval(secs => $6)`,
		key.WorkspaceID, key.User, key.Route, key.Text, key.Body[:], rest.KeyRetention.Seconds()).
		Scan(&same, &answer.Status, &answer.ETag, &answer.Location, &answer.Body)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return rest.Answer{}, false, nil
	case err != nil:
		return rest.Answer{}, false, outcome(err)
	case !same:
		return rest.Answer{}, false, rest.ErrReused
	}
	answer.Replayed = true
	return answer, true, nil
}

const formColumns = "f.id, f.tenant_id, f.embed_key, f.title, f.fields, f.allowed_origins, f.disabled_at is null, " +
	"f.created_at, f.version, f.retention_months, f.introduction, f.thank_you, f.lang"

const formSQL = "select " + formColumns +
	" from resource.forms f where f.tenant_id = $1 and f.id = $2 and f.erased_at is null"

func formFields(f *engage.Form) []any {
	return []any{&f.ID, &f.WorkspaceID, &f.EmbedKey, &f.Title, &f.Fields, &f.AllowedOrigins, &f.Enabled, &f.CreatedAt,
		&f.Version, &f.RetentionMonths, &f.Introduction, &f.ThankYou, &f.Lang}
}

func scanForm(row pgx.CollectableRow) (f engage.Form, err error) {
	return f, row.Scan(formFields(&f)...)
}

// WorkspaceExists reports whether there is a workspace with the id.
func (e *Engage) WorkspaceExists(ctx context.Context, id uuid.UUID) (exists bool, err error) {
	err = e.pool.QueryRow(ctx, "select account.workspace_exists($1)", id).Scan(&exists)
	return exists, outcome(err)
}

// CreateForm implements engage.Writer.
func (w *writing) CreateForm(ctx context.Context, f engage.Form, by uuid.UUID) (engage.Form, error) {
	at, err := nextMoment(ctx, w.tx, f.WorkspaceID, formsList, 1)
	if err != nil {
		return engage.Form{}, err
	}
	f, err = oneForm(ctx, w.tx, `
		insert into resource.forms as f
			(id, tenant_id, embed_key, title, fields, allowed_origins, created_by, disabled_at, created_at,
			retention_months, introduction, thank_you, lang)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
		returning `+formColumns,
		f.ID, f.WorkspaceID, f.EmbedKey, f.Title, f.Fields, f.AllowedOrigins,
		uuid.NullUUID{UUID: by, Valid: by != uuid.Nil}, unless(f.Enabled, at), at,
		f.RetentionMonths, f.Introduction, f.ThankYou, f.Lang)
	if err != nil {
		return engage.Form{}, fmt.Errorf("add a form: %w", err)
	}
	return f, nil
}

// unless returns nil if the condition is true, otherwise the time.
func unless(condition bool, at time.Time) *time.Time {
	if condition {
		return nil
	}
	return &at
}

// ReplaceForm implements engage.Writer. It locks the row, so that only one of two edits of the same version succeeds.
func (w *writing) ReplaceForm(
	ctx context.Context, workspaceID, id uuid.UUID, edit func(engage.Form) (engage.Form, error),
) (engage.Form, error) {
	before, err := oneForm(ctx, w.tx, formSQL+" for update", workspaceID, id)
	if err != nil {
		return engage.Form{}, err
	}
	after, err := edit(before)
	if err != nil {
		return engage.Form{}, err
	}
	if len(after.Differences(before)) == 0 {
		return before, nil
	}
	now, err := timeOfDatabase(ctx, w.tx)
	if err != nil {
		return engage.Form{}, err
	}
	f, err := oneForm(ctx, w.tx, `
		update resource.forms f
		set title = $3, allowed_origins = $4, version = version + 1, retention_months = $6,
			disabled_at = case when $5 then null else coalesce(disabled_at, $10) end,
			introduction = $7, thank_you = $8, lang = $9
		where f.tenant_id = $1 and f.id = $2 returning `+formColumns,
		workspaceID, id, after.Title, after.AllowedOrigins, after.Enabled, after.RetentionMonths,
		after.Introduction, after.ThankYou, after.Lang, now)
	if err != nil {
		return engage.Form{}, fmt.Errorf("change a form: %w", err)
	}
	return f, nil
}

// oneForm runs a statement that returns formColumns of at most one row.
func oneForm(ctx context.Context, db querier, text string, args ...any) (engage.Form, error) {
	return oneRow(ctx, db, engage.ErrNotFound, scanForm, text, args...)
}

// FormByKey reads the form of an embed key, in any state, with the state of the module in its workspace, in one round
// trip. It returns engage.ErrNotFound.
func (e *Engage) FormByKey(ctx context.Context, embedKey string) (engage.FormState, error) {
	var s engage.FormState
	err := e.pool.QueryRow(ctx, `
		select `+formColumns+`, coalesce(m.enabled, false), coalesce(m.provisioned, false)
		from resource.forms f left join account.module_state(f.tenant_id, 'engage') m on true
		where f.embed_key = $1 and f.erased_at is null`, embedKey).
		Scan(append(formFields(&s.Form), &s.ModuleEnabled, &s.ModuleProvisioned)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return engage.FormState{}, engage.ErrNotFound
	}
	return s, outcome(err)
}

// Form reads a form of the workspace. It returns engage.ErrNotFound, also for a form of another workspace.
func (e *Engage) Form(ctx context.Context, workspaceID, id uuid.UUID) (engage.Form, error) {
	f, err := oneForm(ctx, e.pool, formSQL, workspaceID, id)
	return f, outcome(err)
}

// Forms passes one page of the workspace's forms, newest first, to take until it returns false.
func (e *Engage) Forms(
	ctx context.Context, workspaceID uuid.UUID, r rest.Range, take func(engage.Form) bool,
) (rest.End, error) {
	text := "select " + formColumns + " from resource.forms f where f.tenant_id = $1 and f.erased_at is null"
	return readRange(ctx, e.pool, text, "f", arguments{workspaceID}, r, scanForm, take)
}
