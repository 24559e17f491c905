package postgres

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
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

// TakeDirectly activates grants in one statement. It returns a grant for each step that is not refused.
func (s *Store) TakeDirectly(
	ctx context.Context, steps []grant.Step, binding []byte, clientID uuid.UUID, resource string,
) ([]*grant.Grant, error) {
	all := make([]updateStep, len(steps))
	for i, step := range steps {
		all[i] = directStep(step, clientID, resource)
		all[i].binding = binding
	}
	taken, err := s.directActivations.updateBatch(ctx, all)
	grants := make([]*grant.Grant, len(taken))
	for i, one := range taken {
		grants[i] = one.grant
	}
	return grants, err
}
