package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Try runs a statement as the service's role.
func (s *Store) Try(ctx context.Context, sql string) error {
	_, err := s.pool.Exec(ctx, sql)
	return err
}

// TakeAll acquires every connection that requests may use. The caller releases them with release.
func (s *Store) TakeAll(ctx context.Context) (release func(), err error) {
	var all []*pgxpool.Conn
	release = func() {
		for _, one := range all {
			one.Release()
		}
	}
	for range s.pool.Config().MaxConns {
		one, err := s.pool.Acquire(ctx)
		if err != nil {
			release()
			return nil, err
		}
		all = append(all, one)
	}
	return release, nil
}
