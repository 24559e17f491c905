package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/net/web"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

const programmeColumns = "id, name, summary, status, starts_on, ends_on, created_at, updated_at, version, " +
	"coalesce(external_id, '') as external_id"

const programmeSQL = "select " + programmeColumns + " from resource.programmes where tenant_id = $1 and id = $2"

func scanProgramme(row pgx.CollectableRow) (programme.Programme, error) { return programmeOf(row) }

// programmeOf reads a row of programmeColumns followed by further columns.
func programmeOf(row pgx.CollectableRow, further ...any) (programme.Programme, error) {
	var p programme.Programme
	var startsOn, endsOn *time.Time
	columns := []any{&p.ID, &p.Name, &p.Summary, &p.Status, &startsOn, &endsOn, &p.CreatedAt, &p.UpdatedAt, &p.Version,
		&p.ExternalID}
	err := row.Scan(append(columns, further...)...)
	p.StartsOn, p.EndsOn = dateOf(startsOn), dateOf(endsOn)
	return p, err
}

func dateOf(t *time.Time) *programme.Date {
	if t == nil {
		return nil
	}
	return new(programme.DateOf(*t))
}

func timeOf(d *programme.Date) *time.Time {
	if d == nil {
		return nil
	}
	return new(d.Time())
}

// textOrNull returns nil for an empty text.
func textOrNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// Programme reads a programme. It returns programme.ErrNotFound, also for a programme of another workspace.
func (s *Store) Programme(ctx context.Context, workspaceID, id uuid.UUID) (programme.Programme, error) {
	p, err := oneRow(ctx, s.pool, programme.ErrNotFound, scanProgramme, programmeSQL, workspaceID, id)
	return p, outcome(err)
}

// lockProgramme locks and returns a programme.
func (w *writing) lockProgramme(ctx context.Context, workspaceID, id uuid.UUID) (programme.Programme, error) {
	return oneRow(ctx, w.tx, programme.ErrNotFound, scanProgramme, programmeSQL+" for update", workspaceID, id)
}

// Create adds a programme whose details were checked.
func (w *writing) Create(ctx context.Context, workspaceID uuid.UUID, d programme.Details) (programme.Programme, error) {
	if err := freeExternalID(ctx, w.tx, workspaceID, d.ExternalID, uuid.Nil); err != nil {
		return programme.Programme{}, err
	}
	at, err := nextMoment(ctx, w.tx, workspaceID, programmesList, 1)
	if err != nil {
		return programme.Programme{}, err
	}
	p := programme.New(identity.New(), d)
	err = writeProgrammes(ctx, w.tx, workspaceID, []*programme.Programme{&p}, nil, at)
	return p, err
}

// Replace reads a programme, passes it to edit and stores the result. It locks the row, so that only one of two edits
// of the same version succeeds. If edit fails or changes nothing, nothing is written.
func (w *writing) Replace(
	ctx context.Context, workspaceID, id uuid.UUID, edit func(programme.Programme) (programme.Programme, error),
) (programme.Programme, error) {
	before, err := w.lockProgramme(ctx, workspaceID, id)
	if err != nil {
		return programme.Programme{}, err
	}
	after, err := edit(before)
	if err != nil || after.Same(before) {
		return after, err
	}
	if after.ExternalID != before.ExternalID {
		if err := freeExternalID(ctx, w.tx, workspaceID, after.ExternalID, id); err != nil {
			return programme.Programme{}, err
		}
	}
	at, err := nextMoment(ctx, w.tx, workspaceID, programmesList, 1)
	if err != nil {
		return programme.Programme{}, err
	}
	after.Version++
	err = writeProgrammes(ctx, w.tx, workspaceID, nil, []*programme.Programme{&after}, at)
	return after, err
}

// DeleteDraft implements programme.Writer.
func (w *writing) DeleteDraft(ctx context.Context, workspaceID, id, by uuid.UUID) error {
	p, err := w.lockProgramme(ctx, workspaceID, id)
	if err != nil {
		return err
	}
	if p.Status != programme.Draft {
		return programme.ErrNoDraft
	}
	if _, err := w.tx.Exec(ctx, "delete from resource.programmes where tenant_id = $1 and id = $2",
		workspaceID, id); err != nil {
		return fmt.Errorf("delete a programme: %w", err)
	}
	return recordErasure(ctx, w.tx, workspaceID, by, "programme", id, 0, web.RequestID(ctx))
}

// Records of one list become visible in the order of their times (P3, P6 of package programme; E7 of package engage):
// resource.next_moment locks the list until the transaction ends and returns a time later than every time in it. So
// everything in a transaction that may wait for another transaction (an idempotency key, the row to change, a unique
// value) must come before it, or two transactions may deadlock.
//
// A long import chooses its times before it locks the list, and then checks whether they are the latest
// (imports.go).

// Names of the lists for resource.next_moment. The submissions of a form are named by the id of the form.
const (
	programmesList = "programmes"
	formsList      = "forms"
)

// nextMoment locks a list and returns the time of the last of the given number of new records. It is a separate
// statement, because a distributed database cannot call this function as part of a write.
func nextMoment(
	ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID, list string, records int,
) (at time.Time, err error) {
	err = tx.QueryRow(ctx, "select resource.next_moment($1, $2, $3)", workspaceID, list, records).Scan(&at)
	if err != nil {
		return time.Time{}, fmt.Errorf("lock the list of %s: %w", list, err)
	}
	return at, nil
}

// submissionsList returns the name of the list of the form's submissions.
func submissionsList(form uuid.UUID) string { return form.String() }

// lockExternalIDs makes the transaction the only one that gives external ids in the workspace. Each one that gives any
// takes this lock before it locks programmes and, last, the list. So it sees every external id that is given, and never
// waits for a unique value while it holds the list.
func lockExternalIDs(ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID) error {
	if _, err := tx.Exec(ctx, "select resource.lock_external_ids($1)", workspaceID); err != nil {
		return fmt.Errorf("lock the external ids: %w", err)
	}
	return nil
}

// freeExternalID takes the lock of the external ids and returns programme.ErrExternalID if a programme other than this
// one has the external id.
func freeExternalID(ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID, externalID string, but uuid.UUID) error {
	if externalID == "" {
		return nil
	}
	if err := lockExternalIDs(ctx, tx, workspaceID); err != nil {
		return err
	}
	var taken bool
	err := tx.QueryRow(ctx, `
		select exists (select from resource.programmes where tenant_id = $1 and external_id = $2 and id <> $3)`,
		workspaceID, externalID, but).Scan(&taken)
	if err != nil {
		return fmt.Errorf("look for an external id: %w", err)
	}
	if taken {
		return programme.ErrExternalID
	}
	return nil
}

// LockExternalIDs implements programme.Writer.
func (w *writing) LockExternalIDs(ctx context.Context, workspaceID uuid.UUID) error {
	return lockExternalIDs(ctx, w.tx, workspaceID)
}

// lockProgrammes locks the programmes of which the column, id or external_id, has one of the values, in the order of
// their ids, and returns them.
func lockProgrammes(
	ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID, column string, values any,
) ([]programme.Programme, error) {
	found, err := allRows(ctx, tx, scanProgramme, "select "+programmeColumns+
		" from resource.programmes where tenant_id = $1 and "+column+" = any($2) order by id for update",
		workspaceID, values)
	if err != nil {
		return nil, fmt.Errorf("lock programmes: %w", err)
	}
	return found, nil
}

// Upsert implements programme.Writer.
func (w *writing) Upsert(
	ctx context.Context, workspaceID uuid.UUID, all []programme.Upsert,
) ([]programme.Upserted, error) {
	return upsert(ctx, w.tx, workspaceID, all, false)
}

// upsert reads the programmes that have the external ids of all, and writes the results in two statements. An item can
// change what an earlier one created. If whole is set, nothing is written if any item has an error.
func upsert(
	ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID, all []programme.Upsert, whole bool,
) ([]programme.Upserted, error) {
	current, err := lockExternal(ctx, tx, workspaceID, all)
	if err != nil {
		return nil, err
	}
	p := newPlan()
	for _, one := range all {
		p.results = append(p.results, p.upsert(one, current))
	}
	if whole && p.failed {
		return p.results, nil
	}
	if err := p.write(ctx, tx, workspaceID); err != nil {
		return nil, err
	}
	for i := range p.results {
		if written, known := p.final[p.results[i].Programme.ID]; known && p.results[i].Err == nil {
			p.results[i].Programme = *written
		}
	}
	return p.results, nil
}

// lockExternal locks and returns the programmes with the external ids of all, by external id.
func lockExternal(
	ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID, all []programme.Upsert,
) (map[string]*programme.Programme, error) {
	var ids []string
	for _, one := range all {
		if one.New.ExternalID != "" {
			ids = append(ids, one.New.ExternalID)
		}
	}
	stored := map[string]*programme.Programme{}
	if len(ids) == 0 {
		return stored, nil
	}
	if err := lockExternalIDs(ctx, tx, workspaceID); err != nil {
		return nil, err
	}
	found, err := lockProgrammes(ctx, tx, workspaceID, "external_id", ids)
	for _, one := range found {
		stored[one.ExternalID] = &one
	}
	return stored, err
}

// Move implements programme.Writer. It locks the programmes in the order of their ids, as upsert does.
func (w *writing) Move(ctx context.Context, workspaceID uuid.UUID, all []programme.Move) ([]programme.Upserted, error) {
	ids := make([]uuid.UUID, len(all))
	for i, one := range all {
		ids[i] = one.ID
	}
	found, err := lockProgrammes(ctx, w.tx, workspaceID, "id", ids)
	if err != nil {
		return nil, err
	}
	stored := map[uuid.UUID]*programme.Programme{}
	for _, one := range found {
		stored[one.ID] = &one
	}
	p := newPlan()
	for _, one := range all {
		p.results = append(p.results, p.move(stored[one.ID], one.To))
	}
	return p.results, p.write(ctx, w.tx, workspaceID)
}

// A plan is what a batch writes.
type plan struct {
	results          []programme.Upserted
	created, changed []*programme.Programme // in the order of the batch, each once
	final            map[uuid.UUID]*programme.Programme
	failed           bool
}

func newPlan() *plan { return &plan{final: map[uuid.UUID]*programme.Programme{}} }

// upsert adds an item to the plan. current are the programmes by external id after the earlier items.
func (p *plan) upsert(one programme.Upsert, current map[string]*programme.Programme) programme.Upserted {
	before := current[one.New.ExternalID] // nil for an item without an external id
	result := one.Apply(before, identity.New())
	switch {
	case result.Err != nil:
		p.failed = true
	case result.Created:
		made := result.Programme
		p.created, p.final[made.ID] = append(p.created, &made), &made
		if made.ExternalID != "" {
			current[made.ExternalID] = &made
		}
	case !result.Programme.Same(*before):
		if p.change(before) {
			result.Programme.Version++
		}
		*before = result.Programme
	}
	return result
}

// move adds the transition of a programme to the plan. before is nil if there is no such programme.
func (p *plan) move(before *programme.Programme, to programme.Status) programme.Upserted {
	switch {
	case before == nil:
		return programme.Upserted{Err: programme.ErrNotFound}
	case !before.Status.CanBecome(to):
		return programme.Upserted{Err: programme.ErrTransition}
	}
	p.change(before)
	before.Status = to
	return programme.Upserted{Programme: *before}
}

// change adds a programme to those that change, unless the plan writes it already.
func (p *plan) change(one *programme.Programme) (added bool) {
	if p.final[one.ID] != nil {
		return false
	}
	p.changed, p.final[one.ID] = append(p.changed, one), one
	return true
}

// write locks the list and stores the programmes of the plan.
func (p *plan) write(ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID) error {
	count := len(p.created) + len(p.changed)
	if count == 0 {
		return nil
	}
	last, err := nextMoment(ctx, tx, workspaceID, programmesList, count)
	if err != nil {
		return err
	}
	return writeProgrammes(ctx, tx, workspaceID, p.created, p.changed, last)
}

// writeProgrammes stores new and changed programmes. Each gets a time of its own, the last one the newest.
func writeProgrammes(
	ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID, created, changed []*programme.Programme, last time.Time,
) error {
	every := append(created[:len(created):len(created)], changed...)
	for i, one := range every {
		one.UpdatedAt = last.Add(time.Duration(i+1-len(every)) * time.Microsecond)
		if i < len(created) {
			one.CreatedAt = one.UpdatedAt
		}
	}
	if err := execRows(ctx, tx, workspaceID, created, `
		insert into resource.programmes
			(id, tenant_id, name, summary, status, starts_on, ends_on, external_id, created_at, updated_at)
		select n.id, $1, n.name, n.summary, n.status, n.starts_on, n.ends_on, n.external_id, n.at, n.at from new n`,
	); err != nil {
		return fmt.Errorf("add programmes: %w", err)
	}
	if err := execRows(ctx, tx, workspaceID, changed, `
		update resource.programmes p
		set name = n.name, summary = n.summary, status = n.status, starts_on = n.starts_on, ends_on = n.ends_on,
			external_id = n.external_id, updated_at = n.at, version = p.version + 1
		from new n where p.tenant_id = $1 and p.id = n.id`,
	); err != nil {
		return fmt.Errorf("change programmes: %w", err)
	}
	return nil
}

// execRows runs a statement with the programmes as its table new.
func execRows(ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID, all []*programme.Programme, text string) error {
	if len(all) == 0 {
		return nil
	}
	n := len(all)
	ids, at := make([]uuid.UUID, n), make([]time.Time, n)
	names, summaries, states, external := make([]string, n), make([]string, n), make([]string, n), make([]*string, n)
	startsOn, endsOn := make([]*time.Time, n), make([]*time.Time, n)
	for i, one := range all {
		ids[i], at[i], names[i], summaries[i] = one.ID, one.UpdatedAt, one.Name, one.Summary
		states[i], external[i] = string(one.Status), textOrNull(one.ExternalID)
		startsOn[i], endsOn[i] = timeOf(one.StartsOn), timeOf(one.EndsOn)
	}
	_, err := tx.Exec(ctx, `
		with new as (select * from unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::date[], $7::date[],
			$8::text[], $9::timestamptz[]) as new (id, name, summary, status, starts_on, ends_on, external_id, at))`+
		text, workspaceID, ids, names, summaries, states, startsOn, endsOn, external, at)
	return err
}
