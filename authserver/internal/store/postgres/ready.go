package postgres

import (
	"context"
	"fmt"
	"strings"
)

// Ready says whether Postgres answers and has every migration that this program knows. Once it had, it is not asked
// again for them: migrations go forward only. It has a connection of its own: callers that hold all the others do not
// make it wait.
func (s *Store) Ready(ctx context.Context) error {
	if s.migrated.Load() {
		return s.Ping(ctx)
	}
	all, err := schema()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	missing, err := all.Missing(ctx, s.probe)
	if err != nil {
		return unavailable("read which migrations were applied", err)
	}
	if len(missing) > 0 {
		return fmt.Errorf("migrations are missing: %s; run migrate", strings.Join(missing, ", "))
	}
	s.migrated.Store(true)
	return nil
}
