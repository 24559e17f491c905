package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A waitingImport is an import taken for processing.
type waitingImport struct {
	id, workspaceID uuid.UUID
	content         string
}

// takeImport locks an import of the first of the workspaces that has one, until tx ends. It returns nil if there is
// none that is not locked by another worker.
func takeImport(ctx context.Context, tx pgx.Tx, workspaces []uuid.UUID) (*waitingImport, error) {
	for _, workspaceID := range workspaces {
		free, err := takeTurn(ctx, tx, workspaceID)
		if err != nil {
			return nil, fmt.Errorf("take the turn of a workspace: %w", err)
		}
		if !free {
			continue
		}
		taken := &waitingImport{workspaceID: workspaceID}
		err = tx.QueryRow(ctx, `
			select id, content from resource.imports where tenant_id = $1 and status = 'accepted' and try_at <= now()
			order by try_at limit 1 for update skip locked`, workspaceID).Scan(&taken.id, &taken.content)
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("take an import: %w", err)
		}
		return taken, nil
	}
	return nil, nil
}

// workspacesInTurn returns some of the workspaces with an import that is due: first those that never had a turn, then
// those whose last turn is the oldest. So a workspace with many imports delays another by at most one import. The
// query reads one index entry per workspace, however many imports it has.
func (s *Store) workspacesInTurn(ctx context.Context) ([]uuid.UUID, error) {
	ctx, cancel := s.pool.bounded(ctx)
	defer cancel()
	rows, err := s.pool.Query(ctx, `
		with recursive workspace (tenant_id) as (
			(select tenant_id from resource.imports where status = 'accepted' order by tenant_id limit 1)
			union all
			select (select i.tenant_id from resource.imports i
				where i.status = 'accepted' and i.tenant_id > w.tenant_id order by i.tenant_id limit 1)
			from workspace w where w.tenant_id is not null
		), waiting as (
			select w.tenant_id, (select min(i.try_at) from resource.imports i
				where i.tenant_id = w.tenant_id and i.status = 'accepted') as try_at
			from workspace w where w.tenant_id is not null
		), added as (
			insert into resource.import_turns (tenant_id, last_at) select tenant_id, '-infinity' from waiting w
			where not exists (select from resource.import_turns t where t.tenant_id = w.tenant_id)
			on conflict do nothing
		)
		select w.tenant_id from waiting w left join resource.import_turns t on t.tenant_id = w.tenant_id
		where w.try_at <= now() order by t.last_at nulls first, w.try_at limit 32`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
}

// takeTurn reports whether no other worker has an import of the workspace, and locks the workspace's turn until tx
// ends.
func takeTurn(ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID) (bool, error) {
	tag, err := tx.Exec(ctx, `
		update resource.import_turns set last_at = now()
		where tenant_id = (
			select tenant_id from resource.import_turns where tenant_id = $1 for update skip locked)`, workspaceID)
	return tag.RowsAffected() == 1, err
}
