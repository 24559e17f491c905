package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/shared/database/pg"
	"github.com/almonerhq/almoner/shared/rest"
)

// Engage is the part of the Store for forms, submissions and supporters.
type Engage struct {
	*Store
	byKey     pg.Batcher[string, *engage.FormState] // reads forms; the answer is nil for an unknown embed key
	acceptors acceptors
	arrived   chan struct{}
}

// Engage returns the Engage part of the store.
func (s *Store) Engage() *Engage {
	e := &Engage{Store: s, acceptors: acceptors{byForm: map[uuid.UUID]*acceptor{}}, arrived: make(chan struct{}, 1)}
	limitReads(&e.byKey, s.pool)
	e.byKey.Answer = e.formsByKey
	return e
}

// FirstAnswer returns the answer stored under the key, without claiming it. The error may be rest.ErrReused.
func (e *Engage) FirstAnswer(ctx context.Context, key rest.Key) (answer rest.Answer, known bool, err error) {
	answer, err = answers.Stored(ctx, e.pool, key)
	if errors.Is(err, pgx.ErrNoRows) {
		return rest.Answer{}, false, nil
	}
	return answer, err == nil, outcome(err)
}

// formColumns are the columns of an engage.Form.
const formColumns = "f.id, f.tenant_id as workspace_id, f.embed_key, f.title, f.fields, f.allowed_origins, " +
	"f.disabled_at is null as enabled, f.created_at, f.version, f.retention_months, f.introduction, f.thank_you, f.lang"

const formSQL = "select " + formColumns +
	" from resource.forms f where f.tenant_id = $1 and f.id = $2 and f.erased_at is null"

// WorkspaceExists reports whether there is a workspace with the id.
func (e *Engage) WorkspaceExists(ctx context.Context, id uuid.UUID) (bool, error) {
	return oneRow(ctx, e.pool, pgx.ErrNoRows, pgx.RowTo[bool], "select account.workspace_exists($1)", id)
}

// CreateForm implements engage.Writer.
func (w *writing) CreateForm(ctx context.Context, f engage.Form, by uuid.UUID) (engage.Form, error) {
	t := w.transaction(ctx)
	at := t.nextMoment(f.WorkspaceID, formsList, 1)
	created := t.form("add a form", `
		insert into resource.forms as f
			(id, tenant_id, embed_key, title, fields, allowed_origins, created_by, disabled_at, created_at,
			retention_months, introduction, thank_you, lang)
		values ($1, $2, $3, $4, $5, $6, $7, case when $8 then null else $9::timestamptz end, $9, $10, $11, $12, $13)
		returning `+formColumns,
		f.ID, f.WorkspaceID, f.EmbedKey, f.Title, f.Fields, f.AllowedOrigins,
		uuid.NullUUID{UUID: by, Valid: by != uuid.Nil}, f.Enabled, at,
		f.RetentionMonths, f.Introduction, f.ThankYou, f.Lang)
	return created, t.err
}

// ReplaceForm implements engage.Writer. It locks the row, so that only one of two edits of the same version succeeds.
func (w *writing) ReplaceForm(
	ctx context.Context, workspaceID, id uuid.UUID, edit func(engage.Form) (engage.Form, error),
) (engage.Form, error) {
	t := w.transaction(ctx)
	before := t.form("", formSQL+" for update", workspaceID, id)
	if t.err != nil {
		return engage.Form{}, t.err
	}
	after, err := edit(before)
	if err != nil {
		return engage.Form{}, err
	}
	if len(after.Differences(before)) == 0 {
		return before, nil
	}
	now := t.now()
	changed := t.form("change a form", `
		update resource.forms f
		set title = $3, allowed_origins = $4, version = version + 1, retention_months = $6,
			disabled_at = case when $5 then null else coalesce(disabled_at, $10) end,
			introduction = $7, thank_you = $8, lang = $9
		where f.tenant_id = $1 and f.id = $2 returning `+formColumns,
		workspaceID, id, after.Title, after.AllowedOrigins, after.Enabled, after.RetentionMonths,
		after.Introduction, after.ThankYou, after.Lang, now)
	return changed, t.err
}

// form runs a statement that returns formColumns of one row. The error of the transaction is engage.ErrNotFound if
// there is none.
func (t *transaction) form(what, sql string, args ...any) engage.Form {
	return oneOf(t, what, engage.ErrNotFound, pgx.RowToStructByName[engage.Form], sql, args...)
}

// FormByKey reads the form of an embed key, in any state, with the state of the module in its workspace, in one round
// trip. The caller must not change its fields. It returns engage.ErrNotFound.
func (e *Engage) FormByKey(ctx context.Context, embedKey string) (engage.FormState, error) {
	ctx, cancel := e.pool.bounded(ctx)
	defer cancel()
	form, err := e.byKey.Do(ctx, embedKey)
	switch {
	case err != nil:
		return engage.FormState{}, outcome(err)
	case form == nil:
		return engage.FormState{}, engage.ErrNotFound
	}
	return *form, nil
}

// formsByKey reads the form of each key, which several requests may have in common.
func (e *Engage) formsByKey(ctx context.Context, keys []string) ([]*engage.FormState, error) {
	all, err := allRows(ctx, e.pool.Pool, pgx.RowToAddrOfStructByName[engage.FormState], `
		select `+formColumns+`, coalesce(m.enabled, false) as module_enabled,
			coalesce(m.provisioned, false) as module_provisioned
		from resource.forms f left join account.module_state(f.tenant_id, 'engage') m on true
		where f.embed_key = any($1) and f.erased_at is null`, slices.Compact(slices.Sorted(slices.Values(keys))))
	forms := make([]*engage.FormState, len(keys))
	for i, key := range keys {
		if at := slices.IndexFunc(all, func(f *engage.FormState) bool { return f.EmbedKey == key }); at >= 0 {
			forms[i] = all[at]
		}
	}
	return forms, err
}

// Form reads a form of the workspace. It returns engage.ErrNotFound, also for a form of another workspace.
func (e *Engage) Form(ctx context.Context, workspaceID, id uuid.UUID) (engage.Form, error) {
	return oneRow(ctx, e.pool, engage.ErrNotFound, pgx.RowToStructByName[engage.Form], formSQL, workspaceID, id)
}

// Forms passes one page of the workspace's forms, newest first, to take until it returns false.
func (e *Engage) Forms(
	ctx context.Context, workspaceID uuid.UUID, r rest.Range, take func(engage.Form) bool,
) (rest.End, error) {
	text := "select " + formColumns + " from resource.forms f where f.tenant_id = $1 and f.erased_at is null"
	return readRange(ctx, e.pool, text, "f", arguments{workspaceID}, r, pgx.RowToStructByName[engage.Form], take)
}

const supporterSQL = `select p.id, nullif(p.email, '') as email, nullif(p.phone, '') as phone,
	nullif(p.name, '') as name, p.created_at
	from resource.supporters p where p.tenant_id = $1 and p.erased_at is null`

// Supporters passes one page of the workspace's supporters, newest first, to take until it returns false.
func (e *Engage) Supporters(
	ctx context.Context, workspaceID uuid.UUID, r rest.Range, take func(engage.StoredSupporter) bool,
) (rest.End, error) {
	scan := pgx.RowToStructByName[engage.StoredSupporter]
	return readRange(ctx, e.pool, supporterSQL, "p", arguments{workspaceID}, r, scan, take)
}

// Supporter reads a supporter. It returns engage.ErrNoSupporter, also for one of another workspace.
func (s *Store) Supporter(ctx context.Context, workspaceID, id uuid.UUID) (engage.StoredSupporter, error) {
	return oneRow(ctx, s.pool, engage.ErrNoSupporter, pgx.RowToStructByName[engage.StoredSupporter],
		supporterSQL+" and p.id = $2", workspaceID, id)
}
