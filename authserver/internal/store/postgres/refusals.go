package postgres

import (
	"context"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
)

// RecordRefusal appends an event grant.refused, unless this clock hour has one of that grant and reason already.
func (s *Store) RecordRefusal(ctx context.Context, e audit.Event) error {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	_, err := s.pool.Exec(ctx, insertEvent+` on conflict do nothing`, eventArgs(e))
	return unavailable("note refusal", err)
}
