package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/resourceapi/internal/event"
)

// Events passes up to limit events of the workspace after a sequence, oldest first, of the subjects, to take until it
// returns false. It reports whether there are more.
func (s *Store) Events(
	ctx context.Context,
	workspaceID uuid.UUID,
	after int64,
	subjects []string,
	limit int,
	take func(event.Event) bool,
) (more bool, err error) {
	ctx, cancel := s.pool.bounded(ctx)
	defer cancel()
	rows, err := s.pool.Query(ctx, `select sequence, type, data, created_at
		from account.read_events($1, $2, $3, $4)`, workspaceID, after, subjects, limit+1)
	if err != nil {
		return false, outcome(fmt.Errorf("read events: %w", err))
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e event.Event, err error) {
		return e, row.Scan(&e.Sequence, &e.Type, &e.Data, &e.At)
	})
	if err != nil {
		return false, outcome(fmt.Errorf("read events: %w", err))
	}
	for i, e := range all {
		if i == limit || !take(e) {
			return true, nil
		}
	}
	return false, nil
}
