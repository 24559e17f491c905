package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// JobSchema is the schema of the job queue's tables.
const JobSchema = "river"

// A Queue adds the job of a submission within a transaction. waiting is how many submissions of the workspace already
// wait, counted up to a bound.
type Queue interface {
	Add(ctx context.Context, tx pgx.Tx, workspaceID, submission uuid.UUID, waiting int) error
}

// Accepted returns the workspaces of the oldest submissions that have waited for at least the given time, by the ids of
// the submissions. It returns at most limit of them.
func (e *Engage) Accepted(ctx context.Context, waiting time.Duration, limit int) (map[uuid.UUID]uuid.UUID, error) {
	return e.workspacesByID(ctx, `
		select id, tenant_id from resource.submissions
		where status = 'accepted' and created_at <= now() - $1::interval order by created_at limit $2`, waiting, limit)
}

// workspacesByID runs a statement that returns ids of records and of their workspaces.
func (s *Store) workspacesByID(ctx context.Context, text string, args ...any) (map[uuid.UUID]uuid.UUID, error) {
	rows, _ := s.pool.Query(ctx, text, args...) // the rows have the error
	found := map[uuid.UUID]uuid.UUID{}
	var id, workspaceID uuid.UUID
	_, err := pgx.ForEachRow(rows, []any{&id, &workspaceID}, func() error {
		found[id] = workspaceID
		return nil
	})
	return found, outcome(err)
}

// JobDriver lets the job queue use the store's connections.
func (s *Store) JobDriver() *riverpgxv5.Driver { return riverpgxv5.New(s.pool.Pool) }

// Jobs counts the unfinished jobs of submissions by state and returns how long the oldest job that is not running has
// waited.
func (s *Store) Jobs(ctx context.Context) (map[string]int, time.Duration, error) {
	rows, _ := s.pool.Query(ctx, `select state::text, count(*)::int,
	extract(epoch from coalesce(now() - min(scheduled_at) filter (where state <> 'running'), '0'))::float8
from river.river_job where state in ('available', 'running', 'retryable', 'scheduled') and queue = 'default'
group by state`) // the rows have the error
	byState, oldest := map[string]int{}, 0.0
	var state string
	var count int
	var seconds float64
	_, err := pgx.ForEachRow(rows, []any{&state, &count, &seconds}, func() error {
		byState[state], oldest = count, max(oldest, seconds) // negative for a job scheduled in the future
		return nil
	})
	return byState, time.Duration(oldest * float64(time.Second)), outcome(err)
}
