package postgres

import (
	"context"
	"fmt"
	"strings"
)

// Ready returns nil if Postgres answers and has every migration that this program knows. Once it has seen all
// migrations it does not query them again, because migrations only go forward. It fails without a query while the Watch
// treats Postgres as silent, because every statement is refused then. It uses a connection reserved for it, so that it
// does not wait for callers that hold the others.
func (s *Store) Ready(ctx context.Context) error {
	if !s.Responds() {
		return unavailable("not responding; statements are refused", context.DeadlineExceeded)
	}
	if s.migrated.Load() {
		return s.Ping(ctx)
	}
	all, err := schema()
	if err != nil {
		return err
	}
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	missing, err := all.Missing(ctx, s.probe)
	if err != nil {
		return unavailable("read applied migrations", err)
	}
	if len(missing) > 0 {
		return fmt.Errorf("migrations are missing: %s; run migrate", strings.Join(missing, ", "))
	}
	s.migrated.Store(true)
	return nil
}
