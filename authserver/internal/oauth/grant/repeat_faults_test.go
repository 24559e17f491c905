package grant_test

import (
	"context"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// Redis is restored to the state before the rotation. The repeated request is no rotation, because Postgres holds the
// successor. It cannot get the same token, because Redis does not know when the first request was.
func TestG11_RestoredRedisDoesNotRepeat(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, first := b.active()
	key := b.key(g.ID.String())
	older, err := b.rdb.Dump(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	b.lost(b.rotateWith(first, someKey))
	if err := b.rdb.RestoreReplace(t.Context(), key, 0, older).Err(); err != nil {
		t.Fatal(err)
	}
	_, err = b.rotateWith(first, someKey)
	b.refused("refresh", err)
	b.wantRevoked(g.ID, grant.Replayed)
}

// A process crashed after Redis decided and before Postgres committed. The repeated request completes the step.
func TestG11_RepetitionCompletesStepOfCrashedProcess(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, code := b.consent()
	crashed := *b
	steps := newCrashedStore(b.store)
	crashed.grants = b.service(steps)
	first := b.lost(crashed.redeemWith(code, b.terms(), someKey))
	b.again("exchange", first)(b.redeemWith(code, b.terms(), someKey))
	second := b.lost(crashed.rotateWith(first, someKey))
	b.again("refresh", second)(b.rotateWith(first, someKey))
	b.mustRotate(second)
	b.wantActive(g.ID)
}

// A request stalls between the two stores. The client repeats it, gets the token and uses it. The request is then no
// replay, although Postgres refuses its step.
func TestG11_StalledRequestIsNoReplay(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	var meanwhile func()
	stalls := func(_ context.Context, step grant.Step, take stepFunc) (grant.UpdateResult, error) {
		if meanwhile != nil {
			run := meanwhile
			meanwhile = nil
			run()
		}
		return take(step)
	}
	stalled := *b
	stalled.grants = b.service(&aroundStore{b.store, stalls})
	g, code := b.consent()
	var refresh credential.Secret
	meanwhile = func() {
		issued, err := b.redeemWith(code, b.terms(), someKey)
		if err != nil {
			t.Errorf("repeated exchange: %v", err)
		}
		refresh = b.mustRotate(issued.Refresh)
	}
	_, err := stalled.redeemWith(code, b.terms(), someKey)
	unavailable(t, "stalled exchange", err)
	for range 2 { // the first refresh is not direct
		former := refresh
		meanwhile = func() {
			issued, err := b.rotateWith(former, someKey)
			if err != nil {
				t.Errorf("repeated refresh: %v", err)
			}
			refresh = b.mustRotate(issued.Refresh)
		}
		_, err = stalled.rotateWith(former, someKey)
		unavailable(t, "stalled refresh", err)
		b.wantActive(g.ID)
	}
	b.mustRotate(refresh)
}

// newCrashedStore returns a store that loses each step.
func newCrashedStore(grants grant.GrantStore) *aroundStore {
	return &aroundStore{grants, func(context.Context, grant.Step, stepFunc) (grant.UpdateResult, error) {
		return grant.Updated, nil
	}}
}

// The first request gets a 503 after a repeated request got the token. The step must stay, since a client has the
// token.
func TestG11_UndoLeavesWhatRepetitionGave(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	steps := newRepeatingStore(b.store)
	failing := *b
	failing.grants = b.service(steps)
	for _, committed := range []bool{true, false} {
		g, code := b.consent()
		var first, second credential.Secret
		steps.committed = committed
		steps.repeat = func() {
			issued, err := b.anotherProcess().redeemWith(code, b.terms(), someKey)
			if first = issued.Refresh; err != nil || !issued.Repeated {
				t.Errorf("repeated exchange: %v", err)
			}
		}
		_, err := failing.redeemWith(code, b.terms(), someKey)
		unavailable(t, "first exchange", err)
		b.generation(g, 1)
		b.again("exchange after that", first)(b.redeemWith(code, b.terms(), someKey))
		steps.repeat = func() {
			issued, err := b.anotherProcess().rotateWith(first, someKey)
			if second = issued.Refresh; err != nil || !issued.Repeated {
				t.Errorf("repeated refresh: %v", err)
			}
		}
		_, err = failing.rotateWith(first, someKey)
		unavailable(t, "first refresh", err)
		b.generation(g, 2)
		b.again("refresh after that", second)(b.rotateWith(first, someKey))
		b.mustRotate(second)
		b.wantActive(g.ID)
		_, err = b.rotate(second)
		b.refused("replay", err)
		b.wantRevoked(g.ID, grant.Replayed)
	}
}

// generation checks the generation in Postgres.
func (b *testEnv) generation(g grant.Grant, want uint32) {
	b.Helper()
	if stored := b.state(g.ID); stored.State != grant.Active || stored.Generation != want {
		b.Errorf("Postgres holds %s, generation %d, want active, %d", stored.State, stored.Generation, want)
	}
}

// lateRotations receives calls of Superseded too late.
type lateRotations struct{ grant.RotationStore }

func (lateRotations) Superseded(context.Context, grant.Step, grant.Grant) (grant.ScriptResult, error) {
	return grant.Late, nil
}

// If Redis receives the call too late, the request is neither repeated nor treated as a replay.
func TestG11_LateCallIsUnavailable(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, first := b.active()
	b.lost(b.rotateWith(first, someKey))
	late := *b
	rotations := lateRotations{redis.NewGrants(b.rdb)}
	late.grants = b.serviceOf(b.store, rotations)
	_, err := late.rotateWith(first, someKey)
	unavailable(t, "with the key", err)
	_, err = late.rotate(first)
	unavailable(t, "without the key", err)
	b.wantActive(g.ID)
}

// A repeatingStore loses the response to a step after a repeated request got its own.
type repeatingStore struct {
	aroundStore
	committed bool // the step is committed before the repeated request
	repeat    func()
}

func newRepeatingStore(grants grant.GrantStore) *repeatingStore {
	s := &repeatingStore{}
	s.aroundStore = aroundStore{grants, func(
		_ context.Context, step grant.Step, take stepFunc,
	) (grant.UpdateResult, error) {
		if s.committed {
			_, _ = take(step)
		}
		if s.repeat != nil {
			s.repeat()
			s.repeat = nil
		}
		return grant.Refused, store.ErrUnavailable
	}}
	return s
}

// All requests with the key got a 503. Afterwards the credential works with another key (G10).
func TestG10_RepeatedStepIsUndoneWhenNoneAnswered(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	stores := []*stalledStore{newStalledStore(b.store), newStalledStore(b.store)}
	processes := make([]*testEnv, 2)
	for i, steps := range stores {
		process := *b
		process.grants = b.service(steps)
		processes[i] = &process
	}
	stall := func(on bool) {
		for _, s := range stores {
			s.stalled.Store(on)
		}
	}
	g, code := b.consent()
	stall(true)
	for _, process := range processes {
		_, err := process.redeemWith(code, b.terms(), someKey)
		unavailable(t, "exchange", err)
	}
	stall(false)
	issued, err := b.redeemWith(code, b.terms(), otherKey)
	if err != nil {
		t.Fatalf("the code does not work: %v", err)
	}
	for _, process := range processes { // until they have undone the exchange
		for {
			_, err := process.grants.Snapshot(t.Context(), b.app.ID, g.Key(), nil)
			if err == nil || t.Context().Err() != nil {
				break
			}
		}
	}
	stall(true)
	for _, process := range processes {
		_, err := process.rotateWith(issued.Refresh, someKey)
		unavailable(t, "refresh", err)
	}
	stall(false)
	if issued, err = b.rotateWith(issued.Refresh, otherKey); err != nil {
		t.Fatalf("the refresh token does not work: %v", err)
	}
	b.mustRotate(issued.Refresh)
	b.wantActive(g.ID)
}
