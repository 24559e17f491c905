package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
)

// eventSteps are the bounds of one statement on events, so that its time does not grow with the unread events of a
// workspace.
type eventSteps struct {
	Number  int // events that get their sequence
	Examine int // events that are read to find those that a caller may read
}

var defaultEventSteps = eventSteps{Number: 1000, Examine: 5000}

// backgroundStep is how many events get their sequence at once in the background. Longer steps delay requests of other
// workspaces, shorter ones take longer for each event.
const backgroundStep = 200

// Events passes up to limit events of the workspace after a sequence, oldest first, of the subjects, to take until it
// returns false. It returns the sequence after which more events may follow, or 0. A page may have fewer events than
// limit, and none, although more follow.
func (s *Store) Events(
	ctx context.Context, workspaceID uuid.UUID, after int64, subjects []string, limit int,
	take func(delivery.Event) bool,
) (next int64, err error) {
	all, err := allRows(ctx, s.pool, scanEvent, `select sequence, coalesce(type, ''), data, created_at
		from account.events_after($1, $2, $3, $4, $5, $6)`,
		workspaceID, after, subjects, limit+1, s.steps.Number, s.steps.Examine)
	if err != nil {
		return 0, outcome(fmt.Errorf("read events: %w", err))
	}
	last := after
	for i, e := range all {
		if e.Type == "" { // the last row: more may follow
			return e.Sequence, nil
		}
		if i == limit || !take(e) {
			return last, nil
		}
		last = e.Sequence
	}
	return 0, nil
}

// scanEvent reads an event, or the sequence alone of a row without one.
func scanEvent(row pgx.CollectableRow) (e delivery.Event, err error) {
	var at *time.Time
	if err = row.Scan(&e.Sequence, &e.Type, &e.Data, &at); at != nil {
		e.At = rest.Time(*at)
	}
	return e, err
}

// WorkspacesBehind returns up to limit workspaces with events that may have no sequence after the last step.
func (s *Store) WorkspacesBehind(ctx context.Context, limit int) ([]uuid.UUID, error) {
	behind, err := allRows(ctx, s.pool, pgx.RowTo[uuid.UUID], "select tenant from account.workspaces_behind($1)", limit)
	return behind, outcome(err)
}

// NumberEvents assigns sequences to the next events of a workspace, and reports whether others may be left. It is one
// transaction.
func (s *Store) NumberEvents(ctx context.Context, workspaceID uuid.UUID) (behind bool, err error) {
	return oneRow(ctx, s.pool, pgx.ErrNoRows, pgx.RowTo[bool],
		"select behind from account.number_events($1, $2)", workspaceID, min(backgroundStep, s.steps.Number))
}
