package grant_test

import (
	"context"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

// A stepFunc takes a step in Postgres.
type stepFunc func(grant.Step) (grant.UpdateResult, error)

// An aroundStore runs around instead of each step in Postgres.
type aroundStore struct {
	grant.GrantStore
	around func(ctx context.Context, step grant.Step, take stepFunc) (grant.UpdateResult, error)
}

func (s *aroundStore) Activate(ctx context.Context, step grant.Step, binding []byte) (grant.UpdateResult, error) {
	return s.around(ctx, step, func(step grant.Step) (grant.UpdateResult, error) {
		return s.GrantStore.Activate(ctx, step, binding)
	})
}

func (s *aroundStore) Advance(ctx context.Context, step grant.Step) (grant.UpdateResult, error) {
	return s.around(ctx, step, func(step grant.Step) (grant.UpdateResult, error) {
		return s.GrantStore.Advance(ctx, step)
	})
}

func (s *aroundStore) ActivateDirectly(
	ctx context.Context, step grant.Step, binding []byte, terms grant.CodeTerms,
) (grant.Snapshot, grant.UpdateResult, error) {
	return s.directly(ctx, step, terms.ClientID, func(step grant.Step) (grant.Snapshot, grant.UpdateResult, error) {
		return s.GrantStore.ActivateDirectly(ctx, step, binding, terms)
	})
}

func (s *aroundStore) AdvanceDirectly(
	ctx context.Context, step grant.Step, clientID uuid.UUID, terms grant.RefreshTerms,
) (grant.Snapshot, grant.UpdateResult, error) {
	return s.directly(ctx, step, clientID, func(step grant.Step) (grant.Snapshot, grant.UpdateResult, error) {
		return s.GrantStore.AdvanceDirectly(ctx, step, clientID, terms)
	})
}

func (s *aroundStore) directly(
	ctx context.Context,
	step grant.Step,
	clientID uuid.UUID,
	take func(grant.Step) (grant.Snapshot, grant.UpdateResult, error),
) (snapshot grant.Snapshot, result grant.UpdateResult, err error) {
	result, err = s.around(ctx, step, func(step grant.Step) (grant.UpdateResult, error) {
		var result grant.UpdateResult
		var err error
		snapshot, result, err = take(step)
		return result, err
	})
	if err == nil && result != grant.Refused && snapshot.Grant == nil { // around took no step
		snapshot, err = s.Snapshot(ctx, clientID, step.Key())
	}
	return snapshot, result, err
}
