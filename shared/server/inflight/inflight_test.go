package inflight

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func mustEnter(t *testing.T, r *Requests[string], key string) Turn {
	t.Helper()
	turn, err := r.Enter(t.Context(), key)
	testkit.Must(t, err)
	return turn
}

// wantEmpty checks that no request remains.
func wantEmpty(t *testing.T, r *Requests[string]) {
	t.Helper()
	if r.Len() != 0 || r.working != 0 {
		t.Errorf("%d keys and %d requests remain", r.Len(), r.working)
	}
}

func TestEnter_RefusesMoreThanInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New[string](Bounds{InFlight: 3, AtOnce: 1, Wait: time.Hour})
		working := mustEnter(t, r, "a")
		done := make(chan Turn, 2)
		for range 2 {
			go func() { done <- mustEnter(t, r, "a") }()
			synctest.Wait()
		}
		if turn, err := r.Enter(t.Context(), "a"); !errors.Is(err, ErrTooMany) || turn.Others != 3 {
			t.Errorf("fourth request: %v with %d others", err, turn.Others)
		}
		mustEnter(t, r, "b").Leave(false) // another key is not affected
		working.Leave(false)
		(<-done).Leave(false)
		(<-done).Leave(false)
		wantEmpty(t, r)
	})
}

func TestEnter_TurnsAreOrderedAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New[string](Bounds{InFlight: 64, AtOnce: 8, Wait: time.Hour})
		var mu sync.Mutex
		var order []int
		working, most := 0, 0
		for i := range 64 {
			go func() {
				turn := mustEnter(t, r, "a")
				mu.Lock()
				working++
				most = max(most, working)
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				working--
				mu.Unlock()
				turn.Leave(false)
			}()
			synctest.Wait()
		}
		time.Sleep(8 * time.Second)
		synctest.Wait()
		for i, who := range order {
			if i/8 != who/8 {
				t.Fatalf("order %v", order)
			}
		}
		if len(order) != 64 || most != 8 || r.Len() != 0 {
			t.Errorf("%d got a turn, %d at once, %d keys remain", len(order), most, r.Len())
		}
	})
}

// A key may exceed its bound while no other key has requests. Once another key has requests, the first key gets no new
// turns until it is within its bound.
func TestEnter_LoneKeyRunsMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New[string](Bounds{InFlight: 64, AtOnce: 2, Alone: 5, Wait: time.Hour})
		running := make(chan Turn, 64)
		enter := func(count int) {
			for range count {
				go func() { running <- mustEnter(t, r, "a") }()
			}
			synctest.Wait()
		}
		leave := func(count int) {
			for range count {
				(<-running).Leave(false)
			}
		}
		wants := func(when string, count int) {
			t.Helper()
			if synctest.Wait(); len(running) != count {
				t.Errorf("%s: %d run, want %d", when, len(running), count)
			}
		}
		enter(6)
		wants("alone", 5)
		other := mustEnter(t, r, "b")
		leave(3)
		wants("beside another key", 2)
		other.Leave(false)
		wants("alone again", 3)
		leave(3)
		wantEmpty(t, r)
	})
}

func TestEnter_WaitEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(cancel context.CancelFunc, working Turn)
		want error
	}{
		"by time":       {func(context.CancelFunc, Turn) { time.Sleep(5 * time.Second) }, ErrWaited},
		"by the caller": {func(cancel context.CancelFunc, _ Turn) { cancel() }, context.Canceled},
		"by a failure ahead, late": {
			func(_ context.CancelFunc, w Turn) { time.Sleep(failsAfter); w.Leave(true) },
			ErrFailing,
		},
		"not by one at once": {func(_ context.CancelFunc, w Turn) { w.Leave(true) }, nil},
		"by its turn": {
			func(_ context.CancelFunc, w Turn) { time.Sleep(time.Second); w.Leave(false) },
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := New[string](Bounds{InFlight: 2, AtOnce: 1, Wait: 5 * time.Second})
				working := mustEnter(t, r, "a")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1)
				go func() {
					turn, err := r.Enter(ctx, "a")
					if err == nil {
						turn.Leave(false)
					}
					ended <- err
				}()
				synctest.Wait()
				c.end(cancel, working)
				if err := <-ended; !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
				if name == "by time" || name == "by the caller" {
					working.Leave(false)
				}
				wantEmpty(t, r)
			})
		})
	}
}

func TestEnter_TotalIsSharedInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New[string](Bounds{InFlight: 10, AtOnce: 2, Total: 3}) // without Wait, requests wait as long as needed
		first, second, other := mustEnter(t, r, "a"), mustEnter(t, r, "a"), mustEnter(t, r, "b")
		turns := make(chan string, 3)
		entered := map[string]Turn{}
		for _, name := range []string{"a", "c", "b"} {
			go func() {
				turn := mustEnter(t, r, name)
				entered[name] = turn
				turns <- name
			}()
			synctest.Wait()
		}
		time.Sleep(time.Hour)
		if len(turns) != 0 {
			t.Error("more requests run than the total")
		}
		for _, c := range []struct {
			ends Turn
			next string
		}{{other, "c"}, {first, "a"}, {second, "b"}} { // a came before c, but is at its own bound
			c.ends.Leave(false)
			if got := <-turns; got != c.next {
				t.Errorf("%s got the turn, want %s", got, c.next)
			}
		}
		for _, turn := range entered {
			turn.Leave(false)
		}
		wantEmpty(t, r)
	})
}

func TestBytes_BoundsTotalAndPerKey(t *testing.T) {
	b := NewBytes[string](100, 60)
	a, again, other := b.Hold("a"), b.Hold("a"), b.Hold("b")
	for _, c := range []struct {
		by   *Hold[string]
		n    int
		want bool
	}{
		{a, 40, true},
		{again, 21, false},
		{again, 20, true},
		{a, 1, false},
		{other, 41, false},
		{other, 40, true},
		{b.Hold("c"), 1, false},
	} {
		if got := c.by.Take(c.n); got != c.want {
			t.Errorf("%d bytes for %s: %t", c.n, c.by.key, got)
		}
	}
	a.Release()
	a.Release()
	if a.Take(1) {
		t.Error("bytes are taken after the release")
	}
	if !again.Take(40) || again.Take(1) {
		t.Error("released bytes are not available, or counted twice")
	}
	again.Release()
	other.Release()
	if b.used != 0 || len(b.byKey) != 0 {
		t.Errorf("%d bytes of %v are still in use", b.used, b.byKey)
	}
}
