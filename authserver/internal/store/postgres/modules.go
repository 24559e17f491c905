package postgres

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
)

// Modules returns the state of the modules in each workspace of a user, by workspace and name. A module that was never
// enabled may be missing.
func (s *Store) Modules(
	ctx context.Context, user uuid.UUID,
) (map[uuid.UUID]map[string]workspace.ModuleState, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	rows, err := s.pool.Query(ctx, `
		select d.tenant_id, d.module, d.enabled, d.provisioned
		from account.memberships m
		join account.tenant_modules d on d.tenant_id = m.tenant_id
		where m.user_id = $1`, user)
	if err != nil {
		return nil, unavailable("read modules", err)
	}
	out := map[uuid.UUID]map[string]workspace.ModuleState{}
	var id uuid.UUID
	var name string
	var state workspace.ModuleState
	_, err = pgx.ForEachRow(rows, []any{&id, &name, &state.Enabled, &state.Provisioned}, func() error {
		if out[id] == nil {
			out[id] = map[string]workspace.ModuleState{}
		}
		out[id][name] = state
		return nil
	})
	return out, unavailable("read modules", err)
}
