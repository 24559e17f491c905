package postgres

import "context"

// Try runs a statement as the service's role.
func (s *Store) Try(ctx context.Context, sql string) error {
	_, err := s.pool.Exec(ctx, sql)
	return err
}
