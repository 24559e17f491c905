package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/client"
	"github.com/almonerhq/almoner/shared/standing"
)

// Introspection reads, in one trip, the client that asks, the standing of the credential that it asks about and, of a personal access
// token, when it was made (which an access token says itself). What does not exist is nil. Its error wraps grant.ErrUnavailable.
func (s *Store) Introspection(ctx context.Context, caller uuid.UUID, q standing.Question) (*client.Client, *standing.Standing, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue(`select `+clientColumns+` from account.oauth_clients c where c.id = $1 and c.deleted_at is null`, caller)
	batch.Queue(standing.SQL, q.Args()...)
	if q.PATHash != nil {
		batch.Queue(`select max(created_at) from account.personal_access_tokens where hash = $1`, q.PATHash)
	}
	results := s.pool.SendBatch(ctx, batch)
	asking, found, err := readBoth(results)
	var issued *time.Time
	if err == nil && q.PATHash != nil {
		err = results.QueryRow().Scan(&issued)
	}
	if err = errors.Join(err, results.Close()); err != nil {
		return nil, nil, time.Time{}, unavailable("introspect", err)
	}
	if issued == nil {
		return asking, found, time.Time{}, nil
	}
	return asking, found, *issued, nil
}

func readBoth(results pgx.BatchResults) (*client.Client, *standing.Standing, error) {
	var row clientRow
	if err := results.QueryRow().Scan(row.targets()...); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, nil, fmt.Errorf("read client: %w", err)
	}
	rows, err := results.Query()
	if err != nil {
		return nil, nil, fmt.Errorf("read standing: %w", err)
	}
	found, err := standing.Scan(rows)
	if errors.Is(err, standing.ErrUnknown) {
		return row.client(), nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return row.client(), &found, nil
}
