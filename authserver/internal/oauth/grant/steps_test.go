package grant_test

import (
	"context"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A stepFunc takes a step in Postgres.
type stepFunc func(grant.Step) (grant.UpdateResult, error)

// An aroundStore runs around instead of each step in Postgres.
type aroundStore struct {
	grant.GrantStore
	around func(ctx context.Context, step grant.Step, take stepFunc) (grant.UpdateResult, error)
}

func (s *aroundStore) Advance(ctx context.Context, step grant.Step) (grant.UpdateResult, error) {
	return s.around(ctx, step, func(step grant.Step) (grant.UpdateResult, error) {
		return s.GrantStore.Advance(ctx, step)
	})
}

func (s *aroundStore) AdvanceDirectly(
	ctx context.Context, step grant.Step, terms grant.CodeTerms, scope perm.Set,
) (snapshot grant.Snapshot, result grant.UpdateResult, err error) {
	result, err = s.around(ctx, step, func(step grant.Step) (result grant.UpdateResult, err error) {
		snapshot, result, err = s.GrantStore.AdvanceDirectly(ctx, step, terms, scope)
		return result, err
	})
	if err == nil && result != grant.Refused && snapshot.Grant == nil { // around took no step
		snapshot, err = s.Snapshot(ctx, terms.ClientID, step.Key(), nil)
	}
	return snapshot, result, err
}
