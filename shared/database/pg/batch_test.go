package pg

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A doubler answers each query with twice its number, once it is allowed to. It records which queries were
// sent together.
type doubler struct {
	Batcher[int, int]
	let chan error

	mu    sync.Mutex
	asked [][]int
}

func newDoubler() *doubler {
	d := &doubler{let: make(chan error)}
	d.Most, d.AtOnce, d.Within = 64, 1, time.Second
	d.Answer = func(ctx context.Context, questions []int) ([]int, error) {
		d.mu.Lock()
		d.asked = append(d.asked, slices.Clone(questions))
		d.mu.Unlock()
		select {
		case err := <-d.let:
			if err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		answers := make([]int, len(questions))
		for i, q := range questions {
			answers[i] = 2 * q
		}
		return answers, nil
	}
	return d
}

type outcome struct {
	answer int
	err    error
}

// begin starts Do for each of the numbers in a new goroutine, one after the other, and returns once all of
// them wait.
func (d *doubler) begin(ctx context.Context, numbers ...int) []chan outcome {
	var all []chan outcome
	for _, number := range numbers {
		one := make(chan outcome, 1)
		all = append(all, one)
		go func() {
			answer, err := d.Do(ctx, number)
			one <- outcome{answer, err}
		}()
		synctest.Wait()
	}
	return all
}

// statements returns the batches that were sent so far.
func (d *doubler) statements() [][]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.asked)
}

// wantSent checks which batches were sent so far.
func (d *doubler) wantSent(t *testing.T, batches ...[]int) {
	t.Helper()
	synctest.Wait()
	if all := d.statements(); !slices.EqualFunc(all, batches, slices.Equal) {
		t.Errorf("sent %v, want %v", all, batches)
	}
}

// wantDouble checks the answer for a number.
func wantDouble(t *testing.T, one <-chan outcome, number int) {
	t.Helper()
	if got := <-one; got.err != nil || got.answer != 2*number {
		t.Errorf("%d: %+v", number, got)
	}
}

// wantIdle checks that nothing runs or waits after all answers.
func (d *doubler) wantIdle(t *testing.T) {
	t.Helper()
	if synctest.Wait(); d.underWay != 0 || d.alone != 0 || len(d.waiting) != 0 {
		t.Errorf("%d running, %d alone and %d waiting after all answers", d.underWay, d.alone, len(d.waiting))
	}
}

// wantDoubles checks the answers for the numbers from first on.
func wantDoubles(t *testing.T, all []chan outcome, first int) {
	t.Helper()
	for i, one := range all {
		wantDouble(t, one, first+i)
	}
}

func TestDo_CombinesWaitingQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		all := d.begin(t.Context(), 0, 1, 2, 3)
		d.wantSent(t, []int{0})
		d.let <- nil
		d.wantSent(t, []int{0}, []int{1, 2, 3})
		d.let <- nil
		wantDoubles(t, all, 0)
		d.wantIdle(t)
		last := d.begin(t.Context(), 5)[0] // at once again
		d.let <- nil
		wantDouble(t, last, 5)
	})
}

func TestDo_RunsUpToAtOnceStatements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		d.AtOnce = 2
		d.begin(t.Context(), 0, 1, 2, 3)
		d.wantSent(t, []int{0}, []int{1})
		d.let <- nil
		d.wantSent(t, []int{0}, []int{1}, []int{2, 3})
		close(d.let)
	})
}

// A hanging statement delays later queries by at most extraAfter, until the maximum number of
// statements hang.
func TestDo_HangingStatementDoesNotBlockOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		d.begin(t.Context(), 0)
		sent := [][]int{{0}}
		for i := range maxExtra {
			d.begin(t.Context(), 10*i+1, 10*i+2)
			time.Sleep(extraAfter[i] - time.Nanosecond)
			d.wantSent(t, sent...)
			time.Sleep(time.Nanosecond)
			sent = append(sent, []int{10*i + 1, 10*i + 2})
			d.wantSent(t, sent...)
		}
		late := d.begin(t.Context(), 7)[0]
		time.Sleep(2 * extraAfter[maxExtra-1])
		d.wantSent(t, sent...) // no more at once than allowed
		d.let <- nil
		synctest.Wait()
		close(d.let)
		wantDouble(t, late, 7)
		d.wantIdle(t)
	})
}

func TestDo_StatementHoldsAtMostMostQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		d.begin(t.Context(), 0)
		numbers := make([]int, d.Most+1)
		d.begin(t.Context(), numbers...)
		close(d.let)
		synctest.Wait()
		sizes := []int{}
		for _, one := range d.statements()[1:] {
			sizes = append(sizes, len(one))
		}
		if !slices.Equal(sizes, []int{d.Most, 1}) {
			t.Errorf("batches %v", sizes)
		}
	})
}

func TestDo_ErrorReachesEveryCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, down := newDoubler(), errors.New("down")
		d.begin(t.Context(), 0)
		all := d.begin(t.Context(), 1, 2)
		d.let <- down
		d.let <- down
		for _, one := range all {
			if got := <-one; !errors.Is(got.err, down) {
				t.Errorf("%+v", got)
			}
		}
	})
}

// A query that is too far back in the queue for an additional statement gets one later.
func TestDo_QueuedQueryStartsAdditionalStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		d.Most = 1
		d.begin(t.Context(), 0)
		time.Sleep(extraAfter[0] / 2)
		d.begin(t.Context(), 1, 2)
		time.Sleep(extraAfter[1] + tick)
		d.wantSent(t, []int{0}, []int{1}, []int{2})
		close(d.let)
	})
}

// After a panic every caller in the statement gets the error, and the next queries are sent.
func TestDo_PanicIsErrorOfItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		double := d.Answer
		d.Answer = func(ctx context.Context, questions []int) ([]int, error) {
			answers, err := double(ctx, questions)
			if slices.Contains(questions, 13) {
				panic("thirteen")
			}
			return answers, err
		}
		d.begin(t.Context(), 0)
		unlucky := d.begin(t.Context(), 12, 13, 14)
		time.Sleep(extraAfter[0]) // one of them starts a statement for all
		late := d.begin(t.Context(), 15, 13)
		close(d.let)
		for _, one := range append(unlucky, late...) {
			if got := <-one; got.err == nil || !strings.Contains(got.err.Error(), "thirteen") {
				t.Errorf("%+v", got)
			}
		}
		wantDouble(t, d.begin(t.Context(), 4)[0], 4)
	})
}

// If a shared statement hangs, a few of its queries at a time are also sent by themselves.
func TestDo_QueryInHangingStatementIsAlsoSentAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		d.Alone, d.MostAlone, d.Within = 500*time.Millisecond, 1, 10*time.Second
		answer := d.Answer
		d.Answer = func(ctx context.Context, questions []int) ([]int, error) {
			if len(questions) == 1 && questions[0] > 0 {
				return []int{2 * questions[0]}, nil
			}
			return answer(ctx, questions)
		}
		d.begin(t.Context(), 0)
		began := time.Now()
		wantDoubles(t, d.begin(t.Context(), 1, 2), 1)
		if took := time.Since(began); took > d.Alone+tick {
			t.Errorf("answered after %v", took)
		}
		close(d.let)
		d.wantIdle(t)
	})
}

// MostAlone bounds the queries that are sent by themselves, so that a slow Postgres does not receive
// everything twice.
func TestDo_MostAloneBoundsQueriesSentAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		d.Alone, d.MostAlone = 100*time.Millisecond, 2
		d.begin(t.Context(), 0)
		all := d.begin(t.Context(), 1, 2, 3, 4, 5)
		time.Sleep(400 * time.Millisecond)
		synctest.Wait()
		if sent := d.statements(); len(sent) != 4 {
			t.Errorf("sent %v, want the first, the shared statement and two alone", sent)
		}
		close(d.let)
		wantDoubles(t, all, 1)
	})
}

// A caller that leaves before its query is sent withdraws it. A writer whose time ends afterwards gets the outcome of
// its write, as do the others.
func TestDo_CancelledQueryIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		d.Stay = true
		d.begin(t.Context(), 0)
		ctx, cancel := context.WithCancel(t.Context())
		soon, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer end()
		leaving, asked, staying := d.begin(ctx, 1)[0], d.begin(soon, 3)[0], d.begin(t.Context(), 2)[0]
		cancel()
		if got := <-leaving; !errors.Is(got.err, ErrNotSent) || !errors.Is(got.err, context.Canceled) {
			t.Errorf("%+v", got)
		}
		d.let <- nil
		synctest.Wait() // 3 and 2 were sent
		time.Sleep(500 * time.Millisecond)
		close(d.let)
		wantDouble(t, asked, 3)
		wantDouble(t, staying, 2)
		d.wantSent(t, []int{0}, []int{3, 2})
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
		d.wantSent(t, []int{0}, []int{1, 2})
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
