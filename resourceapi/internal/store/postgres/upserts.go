package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/contract/identity"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// lockExternalIDs makes the transaction the only one that gives external ids in the workspace. Each one that gives any
// takes this lock before it locks programmes and, last, the list (programmes.go). So it sees every external id that is
// given, and never waits for a unique value while it holds the list.
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
	stored, err := lockExternal(ctx, tx, workspaceID, all)
	if err != nil {
		return nil, err
	}
	p := planUpserts(all, stored)
	if len(p.created)+len(p.changed) == 0 || whole && p.failed {
		return p.results, nil
	}
	last, err := nextMoment(ctx, tx, workspaceID, programmesList, len(p.created)+len(p.changed))
	if err != nil {
		return nil, err
	}
	if err := p.write(ctx, tx, workspaceID, last); err != nil {
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
) (map[string]programme.Programme, error) {
	var ids []string
	for _, one := range all {
		if one.New.ExternalID != "" {
			ids = append(ids, one.New.ExternalID)
		}
	}
	stored := map[string]programme.Programme{}
	if len(ids) == 0 {
		return stored, nil
	}
	if err := lockExternalIDs(ctx, tx, workspaceID); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, "select "+programmeColumns+` from resource.programmes
		where tenant_id = $1 and external_id = any($2) order by id for update`, workspaceID, ids)
	if err != nil {
		return nil, fmt.Errorf("read programmes by external id: %w", err)
	}
	found, err := pgx.CollectRows(rows, scanProgramme)
	if err != nil {
		return nil, fmt.Errorf("read programmes by external id: %w", err)
	}
	for _, one := range found {
		stored[one.ExternalID] = one
	}
	return stored, nil
}

// An upsertPlan is what a batch writes.
type upsertPlan struct {
	results          []programme.Upserted
	created, changed []*programme.Programme // in the order of the batch, each once
	final            map[uuid.UUID]*programme.Programme
	failed           bool
}

func planUpserts(all []programme.Upsert, stored map[string]programme.Programme) upsertPlan {
	p := upsertPlan{final: map[uuid.UUID]*programme.Programme{}}
	current := map[string]*programme.Programme{}
	for id, one := range stored {
		current[id] = &one
	}
	for _, one := range all {
		var before *programme.Programme
		if one.New.ExternalID != "" {
			before = current[one.New.ExternalID]
		}
		result := one.Apply(before, identity.New())
		p.results = append(p.results, result)
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
			if p.final[before.ID] == nil {
				p.changed, p.final[before.ID] = append(p.changed, before), before
				result.Programme.Version++
			}
			*before = result.Programme
		}
	}
	return p
}

// write stores the created and the changed programmes. Each gets a time of its own, the last one the newest.
func (u upsertPlan) write(ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID, last time.Time) error {
	every := append(u.created[:len(u.created):len(u.created)], u.changed...)
	for i, one := range every {
		one.UpdatedAt = last.Add(time.Duration(i+1-len(every)) * time.Microsecond).UTC()
		if i < len(u.created) {
			one.CreatedAt = one.UpdatedAt
		}
	}
	if err := execRows(ctx, tx, workspaceID, u.created, `
		insert into resource.programmes
			(id, tenant_id, name, summary, status, starts_on, ends_on, external_id, created_at, updated_at)
		select n.id, $1, n.name, n.summary, n.status, n.starts_on, n.ends_on, n.external_id, n.at, n.at from new n`,
	); err != nil {
		return fmt.Errorf("add programmes: %w", err)
	}
	if err := execRows(ctx, tx, workspaceID, u.changed, `
		update resource.programmes p
		set name = n.name, summary = n.summary, status = n.status, starts_on = n.starts_on, ends_on = n.ends_on,
			updated_at = n.at, version = p.version + 1
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

// textOrNull returns nil for an empty text.
func textOrNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// Move implements programme.Writer. It locks the programmes in the order of their ids, as upsert does.
func (w *writing) Move(ctx context.Context, workspaceID uuid.UUID, all []programme.Move) ([]programme.Upserted, error) {
	stored, err := w.lockProgrammes(ctx, workspaceID, all)
	if err != nil {
		return nil, err
	}
	p := upsertPlan{final: map[uuid.UUID]*programme.Programme{}}
	for _, one := range all {
		p.results = append(p.results, p.move(stored[one.ID], one.To))
	}
	if len(p.changed) == 0 {
		return p.results, nil
	}
	last, err := nextMoment(ctx, w.tx, workspaceID, programmesList, len(p.changed))
	if err != nil {
		return nil, err
	}
	return p.results, p.write(ctx, w.tx, workspaceID, last)
}

// move adds the transition of a programme to the plan. before is nil if there is no such programme.
func (u *upsertPlan) move(before *programme.Programme, to programme.Status) programme.Upserted {
	switch {
	case before == nil:
		return programme.Upserted{Err: programme.ErrNotFound}
	case !before.Status.CanBecome(to):
		return programme.Upserted{Err: programme.ErrTransition}
	}
	if u.final[before.ID] == nil {
		u.changed, u.final[before.ID] = append(u.changed, before), before
	}
	before.Status = to
	return programme.Upserted{Programme: *before}
}

// lockProgrammes locks the programmes that all names and returns them by id.
func (w *writing) lockProgrammes(
	ctx context.Context, workspaceID uuid.UUID, all []programme.Move,
) (map[uuid.UUID]*programme.Programme, error) {
	ids := make([]uuid.UUID, len(all))
	for i, one := range all {
		ids[i] = one.ID
	}
	rows, err := w.tx.Query(ctx, "select "+programmeColumns+` from resource.programmes
		where tenant_id = $1 and id = any($2) order by id for update`, workspaceID, ids)
	if err != nil {
		return nil, fmt.Errorf("lock programmes: %w", err)
	}
	found, err := pgx.CollectRows(rows, scanProgramme)
	if err != nil {
		return nil, fmt.Errorf("lock programmes: %w", err)
	}
	stored := map[uuid.UUID]*programme.Programme{}
	for _, one := range found {
		stored[one.ID] = &one
	}
	return stored, nil
}
