package grant_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
)

// A stalledLedger is one whose answers are lost while it is stalled: it takes steps, and cannot be told to take them
// back.
type stalledLedger struct {
	grant.GrantStore
	stalled atomic.Bool
}

func (l *stalledLedger) Activate(ctx context.Context, step grant.Step, binding []byte) (grant.UpdateResult, error) {
	fence, err := l.GrantStore.Activate(ctx, step, binding)
	if l.stalled.Load() {
		return grant.Refused, store.ErrUnavailable
	}
	return fence, err
}

func (l *stalledLedger) Advance(ctx context.Context, step grant.Step) (grant.UpdateResult, error) {
	fence, err := l.GrantStore.Advance(ctx, step)
	if l.stalled.Load() {
		return grant.Refused, store.ErrUnavailable
	}
	return fence, err
}

func (l *stalledLedger) GiveUp(ctx context.Context, step grant.Step) error {
	if l.stalled.Load() {
		return store.ErrUnavailable
	}
	return l.GrantStore.GiveUp(ctx, step)
}

// Postgres commits, and its answer is lost together with the connection of the process that asked. The retry goes to
// another process before the first one can take the step back.
func TestG10_AStepThatPostgresTookWithoutAnAnswerIsTakenBackByTheNextProcess(t *testing.T) {
	b := newBench(t)
	ledger := &stalledLedger{GrantStore: b.store}
	stalled := *b
	stalled.keeper = grant.NewService(ledger, redis.NewGrants(b.rdb), b.mint, slog.New(slog.DiscardHandler))
	other := b.anotherProcess()
	g, code := b.consent()

	ledger.stalled.Store(true)
	_, err := stalled.redeem(code, b.terms())
	unavailable(t, "exchange", err)
	if got := b.state(g.ID); got.State != grant.Active {
		t.Fatalf("Postgres has not taken the step: %s", got.State)
	}
	issued, err := other.redeem(code, b.terms())
	if err != nil {
		t.Fatalf("the code is gone: %v", err)
	}

	_, err = stalled.rotate(issued.Refresh)
	unavailable(t, "refresh, while the exchange is still to be taken back", err)
	ledger.stalled.Store(false)
	for errors.Is(err, store.ErrUnavailable) && t.Context().Err() == nil { // until it has taken the exchange back
		_, err = stalled.keeper.Snapshot(t.Context(), b.app.ID, g.ID)
	}
	second := b.mustRotate(issued.Refresh)
	ledger.stalled.Store(true)
	_, err = stalled.rotate(second)
	unavailable(t, "refresh", err)
	_, err = stalled.rotate(second) // not a replay: the step is still to be taken back
	unavailable(t, "a retry by the same process", err)
	if got := b.state(g.ID); got.Generation != 3 {
		t.Fatalf("Postgres has not taken the step: generation %d", got.Generation)
	}
	third := other.mustRotate(second)
	ledger.stalled.Store(false)
	third = other.mustRotate(third)
	b.alive(g.ID)

	_, err = other.rotate(second)
	b.refused("a superseded token", err)
	b.dead(g.ID, grant.Replayed)
	_, err = other.rotate(third)
	b.refused("after the replay", err)
}

// Redis has decided, its answer is lost, and Postgres cannot be told: until it was, the process answers 503 and does
// not ask Redis, which would take the retry for a replay.
func TestG10_ARetryIsNotJudgedWhileTheDecisionIsTakenBack(t *testing.T) {
	b := newBench(t)
	ledger := &stalledLedger{GrantStore: b.store}
	lost := &swallow{}
	b.rdb.AddHook(lost)
	b.keeper = grant.NewService(ledger, redis.NewGrants(b.rdb), b.mint, slog.New(slog.DiscardHandler))
	g, refresh := b.active()
	ledger.stalled.Store(true)
	lost.on.Store(true)
	_, err := b.rotate(refresh)
	unavailable(t, "refresh", err)
	lost.on.Store(false)
	_, err = b.rotate(refresh)
	unavailable(t, "retry", err)
	b.alive(g.ID)
	ledger.stalled.Store(false)
	for errors.Is(err, store.ErrUnavailable) && t.Context().Err() == nil {
		_, err = b.rotate(refresh)
	}
	if err != nil {
		t.Errorf("the grant was lost: %v", err)
	}
	b.alive(g.ID)
}

// silentRegister does not answer whether a decision was undone while it is silent.
type silentRegister struct {
	grant.RotationStore
	silent atomic.Bool
}

func (r *silentRegister) Undone(ctx context.Context, id uuid.UUID, hash []byte) (bool, error) {
	if r.silent.Load() {
		return false, store.ErrUnavailable
	}
	return r.RotationStore.Undone(ctx, id, hash)
}

// Postgres took a step whose answer was lost, and Redis, which undid it, does not answer the process that is asked
// next. That process cannot tell the retry from a replay, and answers 503.
func TestG10_RetryIsNotJudgedWhileRedisCannotTellItFromAReplay(t *testing.T) {
	b := newBench(t)
	ledger := &stalledLedger{GrantStore: b.store}
	stalled := *b
	stalled.keeper = grant.NewService(ledger, redis.NewGrants(b.rdb), b.mint, slog.New(slog.DiscardHandler))
	register := &silentRegister{RotationStore: redis.NewGrants(b.rdb)}
	other := *b
	other.keeper = grant.NewService(b.store, register, b.mint, slog.New(slog.DiscardHandler))
	g, code := b.consent()

	ledger.stalled.Store(true)
	register.silent.Store(true)
	_, err := stalled.redeem(code, b.terms())
	unavailable(t, "exchange", err)
	_, err = other.redeem(code, b.terms())
	unavailable(t, "exchange again", err)
	b.alive(g.ID)
	register.silent.Store(false)
	issued, err := other.redeem(code, b.terms())
	if err != nil {
		t.Fatalf("the code is gone: %v", err)
	}

	ledger.stalled.Store(false)
	for err = store.ErrUnavailable; errors.Is(err, store.ErrUnavailable) && t.Context().Err() == nil; {
		_, err = stalled.keeper.Snapshot(t.Context(), b.app.ID, g.ID)
	}
	ledger.stalled.Store(true)
	register.silent.Store(true)
	_, err = stalled.rotate(issued.Refresh)
	unavailable(t, "refresh", err)
	_, err = other.rotate(issued.Refresh)
	unavailable(t, "refresh again", err)
	b.alive(g.ID)
	register.silent.Store(false)
	other.mustRotate(issued.Refresh)
	ledger.stalled.Store(false)
	b.alive(g.ID)
}

// A lateLedger is Postgres to which the step of a request that was given up comes late: just before the first step that
// it is told to take. The process that gave the late step up reverts it just afterwards.
type lateLedger struct {
	grant.GrantStore
	t    *testing.T
	told int
}

func (l *lateLedger) Activate(ctx context.Context, step grant.Step, binding []byte) (grant.UpdateResult, error) {
	return l.take(
		ctx,
		step,
		func(step grant.Step) (grant.UpdateResult, error) { return l.GrantStore.Activate(ctx, step, binding) },
	)
}

func (l *lateLedger) Advance(ctx context.Context, step grant.Step) (grant.UpdateResult, error) {
	return l.take(
		ctx,
		step,
		func(step grant.Step) (grant.UpdateResult, error) { return l.GrantStore.Advance(ctx, step) },
	)
}

func (l *lateLedger) take(
	ctx context.Context, step grant.Step, take func(grant.Step) (grant.UpdateResult, error),
) (grant.UpdateResult, error) {
	l.told++
	if l.told > 1 {
		return take(step)
	}
	late := step
	late.Nonce, late.Hash = uuid.NewString(), grant.Binding(step.Hash, "late", "")
	if fence, err := take(late); fence != grant.Updated || err != nil {
		l.t.Errorf("the late step was not taken: %v, %v", fence, err)
	}
	fence, err := take(step)
	if fence != grant.Refused || err != nil {
		l.t.Errorf("the step after the late one: %v, %v; want it refused", fence, err)
	}
	if err := l.GiveUp(ctx, late); err != nil {
		l.t.Error(err)
	}
	return fence, err
}

func TestG10_LateStepThatIsRevertedMeanwhileIsNoReplay(t *testing.T) {
	b := newBench(t)
	g, code := b.consent()
	ledger := &lateLedger{GrantStore: b.store, t: t}
	b.keeper = grant.NewService(ledger, redis.NewGrants(b.rdb), b.mint, slog.New(slog.DiscardHandler))
	issued, err := b.redeem(code, b.terms())
	if err != nil {
		t.Fatalf("the code is gone: %v", err)
	}
	ledger.told = 0
	next := b.mustRotate(issued.Refresh)
	if ledger.told != 2 {
		t.Errorf("Postgres was told %d times, want 2", ledger.told)
	}
	b.mustRotate(next)
	b.alive(g.ID)
}
