package pg

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A caller that leaves before its query is sent withdraws it; a caller that leaves afterwards gets the
// outcome, as do the others.
func TestDo_CancelledQueryIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		d.Stay = true
		d.begin(t.Context(), 0)
		ctx, cancel := context.WithCancel(t.Context())
		soon, hangUp := context.WithCancel(t.Context())
		leaving, asked, staying := d.begin(ctx, 1)[0], d.begin(soon, 3)[0], d.begin(t.Context(), 2)[0]
		cancel()
		if got := <-leaving; !errors.Is(got.err, ErrNotSent) || !errors.Is(got.err, context.Canceled) {
			t.Errorf("%+v", got)
		}
		d.let <- nil
		synctest.Wait() // 3 and 2 were sent
		hangUp()
		synctest.Wait()
		close(d.let)
		if got := <-asked; got.err != nil || got.answer != 6 {
			t.Errorf("%+v", got)
		}
		if got := <-staying; got.err != nil || got.answer != 4 {
			t.Errorf("%+v", got)
		}
		for _, one := range d.statements() {
			if slices.Contains(one, 1) {
				t.Errorf("sent %v", d.statements())
			}
		}
	})
}

// A statement that takes 600 ms is slow, but must not fail a caller that has a second. Callers arrive 20 ms
// apart.
func TestDo_SlowStatementFailsNoCallerBeforeDeadline(t *testing.T) {
	for name, stay := range map[string]bool{"reads": false, "writes": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const callers, apart, own = 200, 20 * time.Millisecond, time.Second
				g := Batcher[int, int]{Most: 64, AtOnce: 1, Within: own, Stay: stay}
				g.Answer = func(ctx context.Context, questions []int) ([]int, error) {
					select {
					case <-time.After(600 * time.Millisecond):
						return questions, nil
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), own)
						defer cancel()
						began := time.Now()
						if answer, err := g.Do(ctx, i); err != nil || answer != i {
							t.Errorf("caller %d: %d, %v after %v, before deadline", i, answer, err, time.Since(began))
						}
					})
					time.Sleep(apart)
				}
				all.Wait()
			})
		})
	}
}

// The time limit of a statement starts with the statement, not with the queries in it.
func TestDo_TimeLimitStartsWithStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		d.begin(t.Context(), 0)
		late, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		first, second := d.begin(late, 1)[0], d.begin(t.Context(), 2)[0]
		time.Sleep(extraAfter[0])
		synctest.Wait()
		if last := d.last(); !slices.Equal(last, []int{1, 2}) {
			t.Fatalf("sent %v", d.statements())
		}
		if got := <-first; !errors.Is(got.err, context.DeadlineExceeded) || time.Since(began) != 100*time.Millisecond {
			t.Errorf("caller with 100 ms: %+v after %v", got, time.Since(began))
		}
		got := <-second
		if !errors.Is(got.err, context.DeadlineExceeded) || time.Since(began) != extraAfter[0]+d.Within {
			t.Errorf("caller without deadline: %+v after %v", got, time.Since(began))
		}
		close(d.let)
	})
}

// A query that is sent by itself has the deadline of its caller.
func TestDo_SingleQueryHasCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		began := time.Now()
		if got := <-d.begin(ctx, 1)[0]; !errors.Is(got.err, context.DeadlineExceeded) ||
			time.Since(began) != 300*time.Millisecond {
			t.Errorf("%+v after %v", got, time.Since(began))
		}
	})
}

// A writer gets the outcome of its write, even after its context ended.
func TestDo_WriterWaitsForOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		d.Stay = true
		d.begin(t.Context(), 0)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		writer := d.begin(ctx, 1)[0]
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		select {
		case got := <-writer:
			t.Fatalf("%+v before the outcome was known", got)
		default:
		}
		close(d.let)
		if got := <-writer; got.err != nil || got.answer != 2 {
			t.Errorf("%+v", got)
		}
	})
}
