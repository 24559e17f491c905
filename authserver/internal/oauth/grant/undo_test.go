package grant_test

import (
	"context"
	"errors"
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
	s.aroundStore = aroundStore{grants, func(
		_ context.Context, step grant.Step, take stepFunc,
	) (grant.UpdateResult, error) {
		result, err := take(step)
		if s.stalled.Load() {
			return grant.Refused, store.ErrUnavailable
		}
		return result, err
	}}
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
	t.Parallel()
	b := newTestEnv(t)
	grants := newStalledStore(b.store)
	stalled := *b
	stalled.grants = b.service(grants)
	other := b.anotherProcess()
	g, code := b.consent()

	grants.stalled.Store(true)
	_, err := stalled.redeem(code, b.terms())
	unavailable(t, "exchange", err)
	if got := b.state(g.ID); got.State != grant.Active {
		t.Fatalf("Postgres has not committed the step: %s", got.State)
	}
	issued, err := other.redeem(code, b.terms())
	if err != nil {
		t.Fatalf("the code does not work: %v", err)
	}

	stalled.grants.SetUndoWait(short)
	_, err = stalled.rotate(issued.Refresh)
	unavailable(t, "refresh, while the exchange is still to be undone", err)
	grants.stalled.Store(false)
	for errors.Is(err, store.ErrUnavailable) && t.Context().Err() == nil { // until it has undone the exchange
		_, err = stalled.grants.Snapshot(t.Context(), b.app.ID, g.Key(), nil)
	}
	second := b.mustRotate(issued.Refresh)
	grants.stalled.Store(true)
	_, err = stalled.rotate(second)
	unavailable(t, "refresh", err)
	_, err = stalled.rotate(second) // not a replay: the step is still to be undone
	unavailable(t, "a retry by the same process", err)
	if got := b.state(g.ID); got.Generation != 3 {
		t.Fatalf("Postgres has not committed the step: generation %d", got.Generation)
	}
	third := other.mustRotate(second)
	grants.stalled.Store(false)
	third = other.mustRotate(third)
	b.wantActive(g.ID)

	_, err = other.rotate(second)
	b.refused("a superseded token", err)
	b.wantRevoked(g.ID, grant.Replayed)
	_, err = other.rotate(third)
	b.refused("after the replay", err)
}

// Redis has decided, its response is lost, and Postgres does not respond. Until the step is undone, the process returns
// 503 and does not call Redis, which would treat the retry as a replay.
func TestG10_RetryIsUnavailableDuringUndo(t *testing.T) {
	t.Parallel()
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
	_, err := b.rotate(refresh)
	unavailable(t, "refresh", err)
	lost.on.Store(false)
	b.grants.SetRedisTime(testkit.SilentStoreWait)
	_, err = b.rotate(refresh)
	unavailable(t, "retry", err)
	b.wantActive(g.ID)
	grants.stalled.Store(false)
	for errors.Is(err, store.ErrUnavailable) && t.Context().Err() == nil {
		_, err = b.rotate(refresh)
	}
	if err != nil {
		t.Errorf("the grant does not work: %v", err)
	}
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
	t.Parallel()
	b := newTestEnv(t)
	rotations := &cutRotations{RotationStore: redis.NewGrants(b.rdb)}
	cut := *b
	cut.grants = b.serviceOf(&aroundStore{b.store, func(
		context.Context, grant.Step, stepFunc,
	) (grant.UpdateResult, error) {
		return grant.Refused, fmt.Errorf("%w: %w", grant.ErrNotCommitted, store.ErrUnavailable)
	}}, rotations)
	g, refresh := b.active()
	_, err := cut.rotate(refresh)
	unavailable(t, "refresh", err)
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
	t.Parallel()
	b := newTestEnv(t)
	grants := newStalledStore(b.store)
	stalled := *b
	stalled.grants = b.service(grants)
	rotations := &silentRotations{RotationStore: redis.NewGrants(b.rdb)}
	other := *b
	other.grants = b.serviceOf(b.store, rotations)
	g, code := b.consent()

	grants.stalled.Store(true)
	rotations.silent.Store(true)
	other.grants.SetRedisTime(short) // it gets no response while Redis is silent
	_, err := stalled.redeem(code, b.terms())
	unavailable(t, "exchange", err)
	_, err = other.redeem(code, b.terms())
	unavailable(t, "exchange again", err)
	b.wantActive(g.ID)
	rotations.silent.Store(false)
	other.grants.SetRedisTime(testkit.SilentStoreWait)
	issued, err := other.redeem(code, b.terms())
	if err != nil {
		t.Fatalf("the code does not work: %v", err)
	}

	grants.stalled.Store(false)
	for err = store.ErrUnavailable; errors.Is(err, store.ErrUnavailable) && t.Context().Err() == nil; {
		_, err = stalled.grants.Snapshot(t.Context(), b.app.ID, g.Key(), nil)
	}
	grants.stalled.Store(true)
	rotations.silent.Store(true)
	other.grants.SetRedisTime(short)
	_, err = stalled.rotate(issued.Refresh)
	unavailable(t, "refresh", err)
	_, err = other.rotate(issued.Refresh)
	unavailable(t, "refresh again", err)
	b.wantActive(g.ID)
	rotations.silent.Store(false)
	other.grants.SetRedisTime(testkit.SilentStoreWait)
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
	t.Parallel()
	b := newTestEnv(t)
	g, code := b.consent()
	calls := 0
	grants := newLateStore(t, b.store, &calls)
	b.grants = b.service(grants)
	issued, err := b.redeem(code, b.terms())
	if err != nil {
		t.Fatalf("the code does not work: %v", err)
	}
	calls = 0
	next := b.mustRotate(issued.Refresh)
	if calls != 2 {
		t.Errorf("%d calls of Postgres, want 2", calls)
	}
	b.mustRotate(next)
	b.wantActive(g.ID)
}
