package postgres

import (
	"context"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
)

// RecordRefusal appends a grant.refused event, unless this clock hour already has one for the same grant and
// reason.
func (s *Store) RecordRefusal(ctx context.Context, e audit.Event) error {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	_, err := s.pool.Exec(ctx, insertEvent+` on conflict do nothing`, eventArgs(e))
	return unavailable("record refusal", err)
}
