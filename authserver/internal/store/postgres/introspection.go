package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/standing"
)

// StandingAndIssue reads the standing of a credential and, for a personal access token, when it was made (which an access token says
// itself), in one round trip. Its error is standing.ErrUnknown, or wraps grant.ErrUnavailable.
func (s *Store) StandingAndIssue(ctx context.Context, q standing.Question) (standing.Standing, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue(standing.SQL, q.Args()...)
	batch.Queue(`select max(created_at) from account.personal_access_tokens where hash = $1`, q.PATHash)
	results := s.pool.SendBatch(ctx, batch)
	answer, issued, err := readBoth(results)
	err = errors.Join(err, results.Close())
	if errors.Is(err, standing.ErrUnknown) {
		return standing.Standing{}, time.Time{}, standing.ErrUnknown
	}
	if err != nil {
		return standing.Standing{}, time.Time{}, unavailable("read standing", err)
	}
	if issued == nil {
		return answer, time.Time{}, nil
	}
	return answer, *issued, nil
}

func readBoth(results pgx.BatchResults) (standing.Standing, *time.Time, error) {
	rows, err := results.Query()
	if err != nil {
		return standing.Standing{}, nil, fmt.Errorf("read standing: %w", err)
	}
	answer, err := standing.Scan(rows)
	if err != nil {
		return standing.Standing{}, nil, err
	}
	var issued *time.Time
	if err := results.QueryRow().Scan(&issued); err != nil {
		return standing.Standing{}, nil, fmt.Errorf("read the time of issue: %w", err)
	}
	return answer, issued, nil
}
