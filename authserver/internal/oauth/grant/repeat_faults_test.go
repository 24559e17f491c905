package grant_test

import (
	"context"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// Redis is restored to the state before the rotation. The repeated request is no rotation, because Postgres holds the
// successor. It cannot get the same token, because Redis does not know when the first request was.
func TestG11_RestoredRedisDoesNotRepeat(t *testing.T) {
	b := newTestEnv(t)
	g, first := b.active()
	restore := b.saved(g)
	b.lost(b.rotateWith(first, someKey))
	restore()
	b.refused("refresh")(b.rotateWith(first, someKey))
	b.wantRevoked(g.ID, grant.Replayed)
}

// A process crashed after Redis decided and before Postgres committed. The repeated request completes the step.
func TestG11_RepetitionCompletesStepOfCrashedProcess(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.consent()
	crashed := b.around(func(grant.Step, stepFunc) (grant.UpdateResult, error) { return grant.Updated, nil })
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
	b := newTestEnv(t)
	var meanwhile func()
	stalled := b.around(func(step grant.Step, take stepFunc) (grant.UpdateResult, error) {
		if run := meanwhile; run != nil {
			meanwhile = nil
			run()
		}
		return take(step)
	})
	g, code := b.consent()
	var refresh credential.Secret
	uses := func(issued grant.Issued, err error) {
		testkit.Must(t, err)
		refresh = b.mustRotate(issued.Refresh)
	}
	meanwhile = func() { uses(b.redeemWith(code, b.terms(), someKey)) }
	b.unavailable("stalled exchange")(stalled.redeemWith(code, b.terms(), someKey))
	for range 2 { // the first refresh is not direct
		former := refresh
		meanwhile = func() { uses(b.rotateWith(former, someKey)) }
		b.unavailable("stalled refresh")(stalled.rotateWith(former, someKey))
		b.wantActive(g.ID)
	}
	b.mustRotate(refresh)
}

// The first request gets a 503 after a repeated request got the token. The step must stay, since a client has the
// token.
func TestG11_UndoLeavesWhatRepetitionGave(t *testing.T) {
	b := newTestEnv(t)
	var repeat func() // gets its response before the step loses its own
	for _, committed := range []bool{true, false} {
		failing := b.around(func(step grant.Step, take stepFunc) (grant.UpdateResult, error) {
			if committed {
				_, _ = take(step)
			}
			if run := repeat; run != nil {
				repeat = nil
				run()
			}
			return grant.Refused, store.ErrUnavailable
		})
		g, code := b.consent()
		var first, second credential.Secret
		repeated := func(issued grant.Issued, err error) credential.Secret {
			if err != nil || !issued.Repeated {
				t.Errorf("repeated %t, %v", issued.Repeated, err)
			}
			return issued.Refresh
		}
		repeat = func() { first = repeated(b.anotherProcess().redeemWith(code, b.terms(), someKey)) }
		b.unavailable("first exchange")(failing.redeemWith(code, b.terms(), someKey))
		b.generation(g, 1)
		b.again("exchange after that", first)(b.redeemWith(code, b.terms(), someKey))
		repeat = func() { second = repeated(b.anotherProcess().rotateWith(first, someKey)) }
		b.unavailable("first refresh")(failing.rotateWith(first, someKey))
		b.generation(g, 2)
		b.again("refresh after that", second)(b.rotateWith(first, someKey))
		b.mustRotate(second)
		b.wantActive(g.ID)
		b.refused("replay")(b.rotate(second))
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
	b := newTestEnv(t)
	g, first := b.active()
	b.lost(b.rotateWith(first, someKey))
	late := *b
	late.grants = b.serviceOf(b.store, lateRotations{redis.NewGrants(b.rdb)})
	b.unavailable("with the key")(late.rotateWith(first, someKey))
	b.unavailable("without the key")(late.rotate(first))
	b.wantActive(g.ID)
}

// All requests with the key got a 503. Afterwards the credential works with another key (G10).
func TestG10_RepeatedStepIsUndoneWhenNoneAnswered(t *testing.T) {
	b := newTestEnv(t)
	stores := []*stalledStore{newStalledStore(b.store), newStalledStore(b.store)}
	processes := []*testEnv{b.over(stores[0]), b.over(stores[1])}
	stall := func(on bool) {
		for _, s := range stores {
			s.stalled.Store(on)
		}
	}
	g, code := b.consent()
	stall(true)
	for _, process := range processes {
		b.unavailable("exchange")(process.redeemWith(code, b.terms(), someKey))
	}
	stall(false)
	refresh := b.lost(b.redeemWith(code, b.terms(), otherKey))
	for _, process := range processes {
		process.awaitUndone(g)
	}
	stall(true)
	for _, process := range processes {
		b.unavailable("refresh")(process.rotateWith(refresh, someKey))
	}
	stall(false)
	b.mustRotate(b.lost(b.rotateWith(refresh, otherKey)))
	b.wantActive(g.ID)
}
