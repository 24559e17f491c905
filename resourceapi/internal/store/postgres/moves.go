package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// Move implements programme.Writer. It locks the programmes in the order of their ids, as upsert does.
func (w *writing) Move(
	ctx context.Context, workspaceID uuid.UUID, all []programme.Move,
) ([]programme.Upserted, error) {
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
func (p *upsertPlan) move(before *programme.Programme, to programme.Status) programme.Upserted {
	switch {
	case before == nil:
		return programme.Upserted{Err: programme.ErrNotFound}
	case !before.Status.CanBecome(to):
		return programme.Upserted{Err: programme.ErrTransition}
	}
	if p.final[before.ID] == nil {
		p.changed, p.final[before.ID] = append(p.changed, before), before
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
