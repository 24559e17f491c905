package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Jobs counts the jobs that have no end yet by their state, and says how long the oldest one that could run has waited.
func (s *Store) Jobs(ctx context.Context) (map[string]int, time.Duration, error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	rows, err := s.pool.Query(
		ctx,
		`select state::text, count(*)::int, extract(epoch from coalesce(now() - min(scheduled_at) filter (where state <> 'running'), '0'))::float8
from river.river_job where state in ('available', 'running', 'retryable', 'scheduled') group by state`,
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
		byState[state], oldest = count, max(oldest, seconds) // below 0 is the time until it is to run
		return nil
	})
	return byState, time.Duration(oldest * float64(time.Second)), outcome(err)
}
