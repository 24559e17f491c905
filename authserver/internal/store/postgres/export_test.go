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

// TakeAll takes every connection that requests may use, until it is told to give them back.
func (s *Store) TakeAll(ctx context.Context) (giveBack func(), err error) {
	var all []*pgxpool.Conn
	giveBack = func() {
		for _, one := range all {
			one.Release()
		}
	}
	for range s.pool.Config().MaxConns {
		one, err := s.pool.Acquire(ctx)
		if err != nil {
			giveBack()
			return nil, err
		}
		all = append(all, one)
	}
	return giveBack, nil
}
