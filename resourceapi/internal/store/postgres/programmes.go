package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/shared/net/web"
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

func dateOf(t *time.Time) programme.Date {
	if t == nil {
		return ""
	}
	return programme.DateOf(*t)
}

// Programme reads a programme. It returns programme.ErrNotFound, also for a programme of another workspace.
func (s *Store) Programme(ctx context.Context, workspaceID, id uuid.UUID) (programme.Programme, error) {
	return oneRow(ctx, s.pool, programme.ErrNotFound, scanProgramme, programmeSQL, workspaceID, id)
}

// lockProgramme locks and returns a programme. The error of the transaction is programme.ErrNotFound if there is none.
func (t *transaction) lockProgramme(workspaceID, id uuid.UUID) programme.Programme {
	return oneOf(t, "", programme.ErrNotFound, scanProgramme, programmeSQL+" for update", workspaceID, id)
}

// Create adds a programme whose details were checked.
func (w *writing) Create(ctx context.Context, workspaceID uuid.UUID, d programme.Details) (programme.Programme, error) {
	t := w.transaction(ctx)
	t.freeExternalID(workspaceID, d.ExternalID, uuid.Nil)
	at := t.nextMoment(workspaceID, programmesList, 1)
	p := programme.New(uuid.Must(uuid.NewV7()), d)
	t.writeProgrammes(workspaceID, []*programme.Programme{&p}, nil, at)
	return p, t.err
}

// Replace reads a programme, passes it to edit and stores the result. It locks the row, so that only one of two edits
// of the same version succeeds. If edit fails or changes nothing, nothing is written.
func (w *writing) Replace(
	ctx context.Context, workspaceID, id uuid.UUID, edit func(programme.Programme) (programme.Programme, error),
) (programme.Programme, error) {
	t := w.transaction(ctx)
	before := t.lockProgramme(workspaceID, id)
	if t.err != nil {
		return programme.Programme{}, t.err
	}
	after, err := edit(before)
	if err != nil || after == before {
		return after, err
	}
	if after.ExternalID != before.ExternalID {
		t.freeExternalID(workspaceID, after.ExternalID, id)
	}
	at := t.nextMoment(workspaceID, programmesList, 1)
	after.Version++
	t.writeProgrammes(workspaceID, nil, []*programme.Programme{&after}, at)
	return after, t.err
}

// DeleteDraft implements programme.Writer.
func (w *writing) DeleteDraft(ctx context.Context, workspaceID, id, by uuid.UUID) error {
	t := w.transaction(ctx)
	p := t.lockProgramme(workspaceID, id)
	t.require(p.Status == programme.Draft, programme.ErrNoDraft)
	t.exec("delete a programme", "delete from resource.programmes where tenant_id = $1 and id = $2", workspaceID, id)
	t.recordErasure(workspaceID, by, "programme", id, 0, web.RequestID(ctx))
	return t.err
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
func (t *transaction) nextMoment(workspaceID uuid.UUID, list string, records int) (at time.Time) {
	t.row("lock the list of "+list, "select resource.next_moment($1, $2, $3)", workspaceID, list, records).read(&at)
	return at
}

// lockExternalIDs makes the transaction the only one that gives external ids in the workspace. Each one that gives any
// takes this lock before it locks programmes and, last, the list. So it sees every external id that is given, and never
// waits for a unique value while it holds the list.
func (t *transaction) lockExternalIDs(workspaceID uuid.UUID) {
	t.exec("lock the external ids", "select resource.lock_external_ids($1)", workspaceID)
}

// freeExternalID takes the lock of the external ids. The error of the transaction is programme.ErrExternalID if a
// programme other than this one has the external id.
func (t *transaction) freeExternalID(workspaceID uuid.UUID, externalID string, but uuid.UUID) {
	if externalID == "" {
		return
	}
	t.lockExternalIDs(workspaceID)
	var taken bool
	t.row("look for an external id", `
		select exists (select from resource.programmes where tenant_id = $1 and external_id = $2 and id <> $3)`,
		workspaceID, externalID, but).read(&taken)
	t.require(!taken, programme.ErrExternalID)
}

// LockExternalIDs implements programme.Writer.
func (w *writing) LockExternalIDs(ctx context.Context, workspaceID uuid.UUID) error {
	t := w.transaction(ctx)
	t.lockExternalIDs(workspaceID)
	return t.err
}

// lockProgrammes locks the programmes of which the column, id or external_id, has one of the values, in the order of
// their ids, and returns them.
func (t *transaction) lockProgrammes(workspaceID uuid.UUID, column string, values any) []programme.Programme {
	return rowsOf(t, "lock programmes", scanProgramme, "select "+programmeColumns+
		" from resource.programmes where tenant_id = $1 and "+column+" = any($2) order by id for update",
		workspaceID, values)
}

// Upsert implements programme.Writer.
func (w *writing) Upsert(
	ctx context.Context, workspaceID uuid.UUID, all []programme.Upsert,
) ([]programme.Result, error) {
	t := w.transaction(ctx)
	results := t.upsert(workspaceID, all, false)
	return results, t.err
}

// upsert reads the programmes that have the external ids of all, and writes the results in two statements. An item can
// change what an earlier one created. If whole is set, nothing is written if any item has an error.
func (t *transaction) upsert(workspaceID uuid.UUID, all []programme.Upsert, whole bool) []programme.Result {
	current := t.lockExternal(workspaceID, all)
	p := newPlan()
	for _, one := range all {
		p.results = append(p.results, p.upsert(one, current))
	}
	if whole && p.failed {
		return p.results
	}
	t.write(workspaceID, p)
	for i := range p.results {
		if written, known := p.final[p.results[i].Programme.ID]; known && p.results[i].Err == nil {
			p.results[i].Programme = *written
		}
	}
	return p.results
}

// lockExternal locks and returns the programmes with the external ids of all, by external id.
func (t *transaction) lockExternal(workspaceID uuid.UUID, all []programme.Upsert) map[string]*programme.Programme {
	var ids []string
	for _, one := range all {
		if one.New.ExternalID != "" {
			ids = append(ids, one.New.ExternalID)
		}
	}
	stored := map[string]*programme.Programme{}
	if len(ids) == 0 {
		return stored
	}
	t.lockExternalIDs(workspaceID)
	for _, one := range t.lockProgrammes(workspaceID, "external_id", ids) {
		stored[one.ExternalID] = &one
	}
	return stored
}

// Move implements programme.Writer. It locks the programmes in the order of their ids, as upsert does.
func (w *writing) Move(ctx context.Context, workspaceID uuid.UUID, all []programme.Move) ([]programme.Result, error) {
	ids := make([]uuid.UUID, len(all))
	for i, one := range all {
		ids[i] = one.ID
	}
	t, stored := w.transaction(ctx), map[uuid.UUID]*programme.Programme{}
	for _, one := range t.lockProgrammes(workspaceID, "id", ids) {
		stored[one.ID] = &one
	}
	p := newPlan()
	for _, one := range all {
		p.results = append(p.results, p.move(stored[one.ID], one.To))
	}
	t.write(workspaceID, p)
	return p.results, t.err
}

// A plan is what a batch writes.
type plan struct {
	results          []programme.Result
	created, changed []*programme.Programme // in the order of the batch, each once
	final            map[uuid.UUID]*programme.Programme
	failed           bool
}

func newPlan() *plan { return &plan{final: map[uuid.UUID]*programme.Programme{}} }

// upsert adds an item to the plan. current are the programmes by external id after the earlier items.
func (p *plan) upsert(one programme.Upsert, current map[string]*programme.Programme) programme.Result {
	before := current[one.New.ExternalID] // nil for an item without an external id
	result := one.Apply(before, uuid.Must(uuid.NewV7()))
	switch {
	case result.Err != nil:
		p.failed = true
	case result.Created:
		made := result.Programme
		p.created, p.final[made.ID] = append(p.created, &made), &made
		if made.ExternalID != "" {
			current[made.ExternalID] = &made
		}
	case result.Programme != *before:
		if p.change(before) {
			result.Programme.Version++
		}
		*before = result.Programme
	}
	return result
}

// move adds the transition of a programme to the plan. before is nil if there is no such programme.
func (p *plan) move(before *programme.Programme, to programme.Status) programme.Result {
	switch {
	case before == nil:
		return programme.Result{Err: programme.ErrNotFound}
	case !before.Status.CanBecome(to):
		return programme.Result{Err: programme.ErrTransition}
	}
	p.change(before)
	before.Status = to
	return programme.Result{Programme: *before}
}

// change adds a programme to those that change, unless the plan writes it already.
func (p *plan) change(one *programme.Programme) (added bool) {
	if p.final[one.ID] != nil {
		return false
	}
	p.changed, p.final[one.ID] = append(p.changed, one), one
	return true
}

// write locks the list and stores the programmes of a plan.
func (t *transaction) write(workspaceID uuid.UUID, p *plan) {
	if count := len(p.created) + len(p.changed); count > 0 {
		t.writeProgrammes(workspaceID, p.created, p.changed, t.nextMoment(workspaceID, programmesList, count))
	}
}

// writeProgrammes stores new and changed programmes. Each gets a time of its own, the last one the newest.
func (t *transaction) writeProgrammes(
	workspaceID uuid.UUID, created, changed []*programme.Programme, last time.Time,
) {
	every := append(created[:len(created):len(created)], changed...)
	for i, one := range every {
		one.UpdatedAt = last.Add(time.Duration(i+1-len(every)) * time.Microsecond)
		if i < len(created) {
			one.CreatedAt = one.UpdatedAt
		}
	}
	t.execRows("add programmes", workspaceID, created, `
		insert into resource.programmes
			(id, tenant_id, name, summary, status, starts_on, ends_on, external_id, created_at, updated_at)
		select n.id, $1, n.name, n.summary, n.status, n.starts_on, n.ends_on, n.external_id, n.at, n.at from new n`)
	t.execRows("change programmes", workspaceID, changed, `
		update resource.programmes p
		set name = n.name, summary = n.summary, status = n.status, starts_on = n.starts_on, ends_on = n.ends_on,
			external_id = n.external_id, updated_at = n.at, version = p.version + 1
		from new n where p.tenant_id = $1 and p.id = n.id`)
}

// execRows runs a statement with the programmes as its table new.
func (t *transaction) execRows(what string, workspaceID uuid.UUID, all []*programme.Programme, sql string) {
	if len(all) == 0 {
		return
	}
	n := len(all)
	ids, at := make([]uuid.UUID, n), make([]time.Time, n)
	names, summaries, states, external := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	startsOn, endsOn := make([]string, n), make([]string, n)
	for i, one := range all {
		ids[i], at[i], names[i], summaries[i] = one.ID, one.UpdatedAt, one.Name, one.Summary
		states[i], external[i] = string(one.Status), one.ExternalID
		startsOn[i], endsOn[i] = string(one.StartsOn), string(one.EndsOn)
	}
	t.exec(what, `
		with new as (select id, name, summary, status, nullif(starts_on, '')::date as starts_on,
				nullif(ends_on, '')::date as ends_on, nullif(external_id, '') as external_id, at
			from unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
				$9::timestamptz[]) as new (id, name, summary, status, starts_on, ends_on, external_id, at))`+
		sql, workspaceID, ids, names, summaries, states, startsOn, endsOn, external, at)
}
