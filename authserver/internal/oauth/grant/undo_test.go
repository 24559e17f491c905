package grant_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A stalledStore loses its responses while it is stalled: it commits steps, and cannot undo them.
type stalledStore struct {
	aroundStore
	stalled atomic.Bool
}

func newStalledStore(grants grant.GrantStore) *stalledStore {
	s := &stalledStore{}
	s.aroundStore = *aroundOf(grants, func(step grant.Step, take stepFunc) (grant.UpdateResult, error) {
		result, err := take(step)
		if s.stalled.Load() {
			return grant.Refused, store.ErrUnavailable
		}
		return result, err
	})
	return s
}

func (s *stalledStore) CancelTries(ctx context.Context, step grant.Step, nonces []string) error {
	if s.stalled.Load() {
		return store.ErrUnavailable
	}
	return s.GrantStore.CancelTries(ctx, step, nonces)
}

// Postgres commits, and its response and the connection of the process are lost. The retry goes to another process
// before the first one can undo the step.
func TestG10_NextProcessUndoesStepWithLostReply(t *testing.T) {
	b := newTestEnv(t)
	grants := newStalledStore(b.store)
	stalled, other := b.over(grants), b.anotherProcess()
	g, code := b.consent()

	grants.stalled.Store(true)
	b.unavailable("exchange")(stalled.redeem(code, b.terms()))
	b.generation(g, 1)
	issued := other.mustRedeem(code)

	stalled.grants.SetUndoWait(short)
	b.unavailable("refresh, while the exchange is still to be undone")(stalled.rotate(issued.Refresh))
	grants.stalled.Store(false)
	stalled.awaitUndone(g)
	second := b.mustRotate(issued.Refresh)
	grants.stalled.Store(true)
	b.unavailable("refresh")(stalled.rotate(second))
	b.unavailable("a retry by the same process")(stalled.rotate(second)) // not a replay: the step is still to be undone
	b.generation(g, 3)
	third := other.mustRotate(second)
	grants.stalled.Store(false)
	third = other.mustRotate(third)
	b.wantActive(g.ID)

	b.refused("a superseded token")(other.rotate(second))
	b.wantRevoked(g.ID, grant.Replayed)
	b.refused("after the replay")(other.rotate(third))
}

// Redis has decided, its response is lost, and Postgres does not respond. Until the step is undone, the process returns
// 503 and does not call Redis, which would treat the retry as a replay.
func TestG10_RetryIsUnavailableDuringUndo(t *testing.T) {
	b := newTestEnv(t)
	grants := newStalledStore(b.store)
	lost := &dropReplies{}
	b.rdb.AddHook(lost)
	b.grants = b.service(grants)
	g, refresh := b.active()
	grants.stalled.Store(true)
	lost.on.Store(true)
	b.grants.SetRedisTime(sentWithin)
	b.grants.SetUndoWait(short)
	b.unavailable("refresh")(b.rotate(refresh))
	lost.on.Store(false)
	b.grants.SetRedisTime(testkit.SilentStoreWait)
	b.unavailable("retry")(b.rotate(refresh))
	b.wantActive(g.ID)
	grants.stalled.Store(false)
	eventually(t, "refresh", func() error { _, err := b.rotate(refresh); return err })
	b.wantActive(g.ID)
}

// cutRotations has no connection to Redis for undos. It counts them.
type cutRotations struct {
	grant.RotationStore
	undos int
}

func (r *cutRotations) Undo(context.Context, uuid.UUID, string, grant.Undo) (bool, error) {
	r.undos++
	return false, store.ErrUnavailable
}

// Redis has decided, Postgres certainly did not commit, and Redis then confirms no undo. Postgres gets the undo at
// once, so that the request ends without a second call to Redis, and the client's retry at another process is no
// replay.
func TestG10_PostgresHasUndoThatRedisDoesNotConfirm(t *testing.T) {
	b := newTestEnv(t)
	rotations := &cutRotations{RotationStore: redis.NewGrants(b.rdb)}
	cut := *b
	cut.grants = b.serviceOf(aroundOf(b.store, func(grant.Step, stepFunc) (grant.UpdateResult, error) {
		return grant.Refused, fmt.Errorf("%w: %w", grant.ErrNotCommitted, store.ErrUnavailable)
	}), rotations)
	g, refresh := b.active()
	b.unavailable("refresh")(cut.rotate(refresh))
	if rotations.undos != 1 {
		t.Errorf("Redis got %d calls to undo the step, want 1", rotations.undos)
	}
	b.anotherProcess().mustRotate(refresh)
	b.wantActive(g.ID)
}

// silentRotations does not respond to Superseded while it is silent.
type silentRotations struct {
	grant.RotationStore
	silent atomic.Bool
}

func (r *silentRotations) Superseded(
	ctx context.Context, step grant.Step, known grant.Grant,
) (grant.ScriptResult, error) {
	if r.silent.Load() {
		return "", store.ErrUnavailable
	}
	return r.RotationStore.Superseded(ctx, step, known)
}

// Postgres committed a step whose response was lost. Redis, which undid it, does not respond to the next process. That
// process cannot distinguish the retry from a replay, and returns 503.
func TestG10_RetryIsUnavailableWhileRedisIsSilent(t *testing.T) {
	b := newTestEnv(t)
	grants := newStalledStore(b.store)
	stalled := b.over(grants)
	rotations := &silentRotations{RotationStore: redis.NewGrants(b.rdb)}
	other := *b
	other.grants = b.serviceOf(b.store, rotations)
	g, code := b.consent()
	stall := func() {
		grants.stalled.Store(true)
		rotations.silent.Store(true)
		other.grants.SetRedisTime(short) // it gets no response while Redis is silent
	}
	speak := func() {
		rotations.silent.Store(false)
		other.grants.SetRedisTime(testkit.SilentStoreWait)
	}
	stall()
	b.unavailable("exchange")(stalled.redeem(code, b.terms()))
	b.unavailable("exchange again")(other.redeem(code, b.terms()))
	b.wantActive(g.ID)
	speak()
	issued := other.mustRedeem(code)

	grants.stalled.Store(false)
	stalled.awaitUndone(g)
	stall()
	b.unavailable("refresh")(stalled.rotate(issued.Refresh))
	b.unavailable("refresh again")(other.rotate(issued.Refresh))
	b.wantActive(g.ID)
	speak()
	other.mustRotate(issued.Refresh)
	grants.stalled.Store(false)
	b.wantActive(g.ID)
}

// newLateStore returns a store that receives a given-up step late: just before the first step that it commits. The
// process that gave up the late step reverts it just afterwards. calls counts the steps.
func newLateStore(t *testing.T, grants grant.GrantStore, calls *int) *aroundStore {
	return &aroundStore{grants, func(
		ctx context.Context, step grant.Step, take stepFunc,
	) (grant.UpdateResult, error) {
		*calls++
		if *calls > 1 {
			return take(step)
		}
		late := step
		late.Nonce, late.Hash = uuid.NewString(), grant.Binding(step.Hash, "late", "")
		if result, err := take(late); result != grant.Updated || err != nil {
			t.Errorf("the late step was not committed: %v, %v", result, err)
		}
		result, err := take(step)
		if result != grant.Refused || err != nil {
			t.Errorf("the step after the late one: %v, %v; want it refused", result, err)
		}
		if err := grants.CancelTries(ctx, late, []string{late.Nonce}); err != nil {
			t.Error(err)
		}
		return result, err
	}}
}

func TestG10_RevertedLateStepIsNoReplay(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.consent()
	calls := 0
	b.grants = b.service(newLateStore(t, b.store, &calls))
	first := b.mustRedeem(code).Refresh
	calls = 0
	next := b.mustRotate(first)
	if calls != 2 {
		t.Errorf("%d calls of Postgres, want 2", calls)
	}
	b.mustRotate(next)
	b.wantActive(g.ID)
}
