package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Jobs counts the unfinished jobs of submissions by state and returns how long the oldest job that is not running has
// waited.
func (s *Store) Jobs(ctx context.Context) (map[string]int, time.Duration, error) {
	ctx, cancel := s.pool.bounded(ctx)
	defer cancel()
	rows, err := s.pool.Query(
		ctx,
		`select state::text, count(*)::int,
	extract(epoch from coalesce(now() - min(scheduled_at) filter (where state <> 'running'), '0'))::float8
from river.river_job where state in ('available', 'running', 'retryable', 'scheduled') and queue = 'default'
group by state`,
	)
	if err != nil {
		return nil, 0, outcome(err)
	}
	byState, oldest := map[string]int{}, 0.0
	var (
		state   string
		count   int
		seconds float64
	)
	_, err = pgx.ForEachRow(rows, []any{&state, &count, &seconds}, func() error {
		byState[state], oldest = count, max(oldest, seconds) // negative for a job scheduled in the future
		return nil
	})
	return byState, time.Duration(oldest * float64(time.Second)), outcome(err)
}
