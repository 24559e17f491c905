package postgres_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

func (l *storeTest) cancel(step grant.Step) {
	l.Helper()
	if err := l.CancelTries(l.Context(), step, []string{step.Nonce}); err != nil {
		l.Error(err)
	}
}

func (l *storeTest) wantStored(state grant.State, generation uint32, hash []byte) grant.Grant {
	l.Helper()
	g, err := l.Grant(l.Context(), l.grant.Key())
	if err != nil || g.State != state || g.Generation != generation || !bytes.Equal(g.RefreshHash, hash) {
		l.Errorf("%s, generation %d, hash %x, %v", g.State, g.Generation, g.RefreshHash, err)
	}
	return g
}

func TestG10_GivenUpStepIsRevertedOrRefused(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	ctx := t.Context()
	l.wantState(grant.Pending)(l.approve(ctx, l.grant))
	binding := l.grant.CodeBinding
	exchange := func(nonce string, b byte) grant.Step { return l.step(nonce, 1, hash(b)) }
	l.cancel(exchange("not taken", 10))
	l.wantResult(grant.Refused)(l.Activate(ctx, exchange("not taken", 10), binding))
	l.wantResult(grant.Updated)(l.Activate(ctx, exchange("taken", 11), binding))
	l.cancel(exchange("taken", 11))
	l.wantStored(grant.Pending, 0, nil)
	l.wantResult(grant.Refused)(l.Activate(ctx, exchange("taken", 11), binding))
	l.wantResult(grant.Updated)(l.Activate(ctx, exchange("retry", 12), binding))

	refresh := func(nonce string, b byte) grant.Step {
		step := l.step(nonce, 2, hash(b))
		step.Former = hash(12)
		return step
	}
	l.cancel(refresh("not taken 2", 20))
	l.wantResult(grant.Refused)(l.Advance(ctx, refresh("not taken 2", 20)))
	l.wantResult(grant.Updated)(l.Advance(ctx, refresh("taken 2", 21)))
	l.cancel(refresh("taken 2", 21))
	l.wantStored(grant.Active, 1, hash(12))
	l.wantResult(grant.Updated)(l.Advance(ctx, refresh("retry 2", 22)))
	l.cancel(refresh("taken 2", 21)) // repeated: another step was taken since
	l.wantStored(grant.Active, 2, hash(22))
}

// A try is given up again until Postgres has answered. That must not push out the nonces of other tries.
func TestG10_NonceIsStoredOnce(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	l.wantState(grant.Pending)(l.approve(t.Context(), l.grant))
	step := func(nonce string) grant.Step { return l.step(nonce, 1, hash(10)) }
	l.cancel(step("first"))
	for range 9 {
		l.cancel(step("second"))
	}
	l.wantResult(grant.Refused)(l.Activate(t.Context(), step("first"), l.grant.CodeBinding))
	l.wantResult(grant.Refused)(l.Activate(t.Context(), step("second"), l.grant.CodeBinding))
}

// Postgres stores the last eight nonces in the order in which they were given up, and does not change a
// revoked grant.
func TestG10_GivenUpNoncesAreBounded(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	l.wantState(grant.Pending)(l.approve(t.Context(), l.grant))
	l.wantResult(grant.Updated)(l.activate(t.Context(), l.grant.ID, 11))
	if g := l.wantStored(grant.Active, 1, hash(11)); g.GivenUp != nil {
		t.Errorf("%q", g.GivenUp)
	}
	step := l.step("", 2, hash(20))
	step.Former = hash(11)
	for i := range 10 {
		step.Nonce = fmt.Sprint(i)
		l.cancel(step)
	}
	if g := l.wantStored(grant.Active, 1, hash(11)); fmt.Sprint(g.GivenUp) != "[2 3 4 5 6 7 8 9]" {
		t.Errorf("%q", g.GivenUp)
	}
	if err := l.Revoke(t.Context(), l.grant.Key(), grant.ByUser, "user", nil); err != nil {
		t.Fatal(err)
	}
	step.Generation, step.Hash = 1, hash(11)
	l.cancel(step)
	l.wantStored(grant.Revoked, 1, hash(11))
}

// Tries that repeat a step share it. It is reverted when all of them were given up, and never if there were too many.
func TestG10_RepeatedStepIsRevertedByItsLastTry(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	ctx := t.Context()
	l.wantState(grant.Pending)(l.approve(ctx, l.grant))
	binding := l.grant.CodeBinding
	exchange := func(nonce string) grant.Step { return l.step(nonce, 1, hash(11)) }
	for _, nonce := range []string{"a", "b"} {
		l.wantResult(grant.Updated)(l.Activate(ctx, exchange(nonce), binding))
		l.wantResult(grant.Updated)(l.Activate(ctx, exchange(nonce), binding))
	}
	l.cancel(exchange("b"))
	l.wantResult(grant.Refused)(l.Activate(ctx, exchange("b"), binding))
	if g := l.wantStored(grant.Active, 1, hash(11)); fmt.Sprint(g.TakenBy) != "[a]" {
		t.Errorf("taken by %q", g.TakenBy)
	}
	l.cancel(exchange("a"))
	l.wantStored(grant.Pending, 0, nil)
	l.wantResult(grant.Updated)(l.Activate(ctx, exchange("c"), binding))

	refresh := func(nonce string) grant.Step {
		step := l.step(nonce, 2, hash(12))
		step.Former = hash(11)
		return step
	}
	for _, nonce := range []string{"d", "e"} {
		l.wantResult(grant.Updated)(l.Advance(ctx, refresh(nonce)))
	}
	if err := l.CancelTries(ctx, refresh(""), []string{"d", "e"}); err != nil {
		t.Fatal(err)
	}
	l.wantStored(grant.Active, 1, hash(11))
	for _, nonce := range []string{"f", "g", "h", "i"} {
		l.wantResult(grant.Updated)(l.Advance(ctx, refresh(nonce)))
	}
	for _, nonce := range []string{"f", "g", "h", "i"} {
		l.cancel(refresh(nonce))
	}
	if g := l.wantStored(grant.Active, 2, hash(12)); fmt.Sprint(g.TakenBy) != "["+grant.ManyTries+"]" {
		t.Errorf("taken by %q", g.TakenBy)
	}
}
