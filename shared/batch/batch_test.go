package batch

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

// A doubler answers each question with twice its number, once it is let. It notes what it was asked together.
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

// begin asks for each of the numbers in a goroutine of its own, one after the other, and returns once all of them wait.
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

// statements are what was asked, together, so far.
func (d *doubler) statements() [][]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.asked)
}

func (d *doubler) last() []int {
	all := d.statements()
	return all[len(all)-1]
}

func TestWhatComesMeanwhileIsAskedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		all := slices.Concat(d.begin(t.Context(), 0), d.begin(t.Context(), 1, 2, 3))
		if len(d.statements()) != 1 {
			t.Fatalf("asked %v while one may be under way", d.statements())
		}
		d.let <- nil
		synctest.Wait()
		if last := d.last(); !slices.Equal(last, []int{1, 2, 3}) {
			t.Errorf("asked %v", d.statements())
		}
		d.let <- nil
		for i, one := range all {
			if got := <-one; got.err != nil || got.answer != 2*i {
				t.Errorf("%d: %+v", i, got)
			}
		}
		synctest.Wait()
		if d.underWay != 0 || len(d.waiting) != 0 {
			t.Errorf("%d under way and %d waiting when all are answered", d.underWay, len(d.waiting))
		}
		last := d.begin(t.Context(), 5)[0] // at once again
		d.let <- nil
		if got := <-last; got.answer != 10 {
			t.Errorf("%+v", got)
		}
	})
}

func TestAsManyStatementsAsMayBeBeginAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		d.AtOnce = 2
		d.begin(t.Context(), 0, 1, 2, 3)
		if all := d.statements(); !slices.EqualFunc(all, [][]int{{0}, {1}}, slices.Equal) {
			t.Errorf("asked %v", all)
		}
		d.let <- nil
		synctest.Wait()
		if last := d.last(); !slices.Equal(last, []int{2, 3}) {
			t.Errorf("asked %v", d.statements())
		}
		close(d.let)
	})
}

// A statement that hangs holds up nobody who comes later for longer than their patience, until as many hang as may be.
func TestAStatementThatHangsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		d.begin(t.Context(), 0)
		for i := range mostHanging {
			d.begin(t.Context(), 10*i+1, 10*i+2)
			time.Sleep(patience[i] - time.Nanosecond)
			synctest.Wait()
			if len(d.statements()) != i+1 {
				t.Fatalf("asked %v before anybody was impatient", d.statements())
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if last := d.last(); !slices.Equal(last, []int{10*i + 1, 10*i + 2}) {
				t.Fatalf("asked %v", d.statements())
			}
		}
		late := d.begin(t.Context(), 7)[0]
		time.Sleep(2 * patience[mostHanging-1])
		synctest.Wait()
		if len(d.statements()) != 1+mostHanging {
			t.Fatalf("asked %v, more at once than may be", d.statements())
		}
		d.let <- nil
		synctest.Wait()
		close(d.let)
		if got := <-late; got.err != nil || got.answer != 14 {
			t.Errorf("%+v", got)
		}
		synctest.Wait()
		if d.underWay != 0 || len(d.waiting) != 0 {
			t.Errorf("%d under way and %d waiting when all are answered", d.underWay, len(d.waiting))
		}
	})
}

func TestNoStatementIsAskedTooMuch(t *testing.T) {
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
			t.Errorf("asked %v together", sizes)
		}
	})
}

// Whoever hangs up before the question was asked takes it along; whoever hangs up afterwards hears what came of it, and
// so do the others.
func TestWhoLeavesIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		d.Stay = true
		d.begin(t.Context(), 0)
		ctx, cancel := context.WithCancel(t.Context())
		soon, hangUp := context.WithCancel(t.Context())
		leaving, asked, staying := d.begin(ctx, 1)[0], d.begin(soon, 3)[0], d.begin(t.Context(), 2)[0]
		cancel()
		if got := <-leaving; !errors.Is(got.err, ErrUnasked) || !errors.Is(got.err, context.Canceled) {
			t.Errorf("%+v", got)
		}
		d.let <- nil
		synctest.Wait() // 3 and 2 were asked
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
				t.Errorf("asked %v", d.statements())
			}
		}
	})
}

func TestAnErrorIsEverybodys(t *testing.T) {
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

// Whoever was too far behind to insist at first does so later.
func TestWhoeverWaitsGoesOnInsisting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		d.Most = 1
		d.begin(t.Context(), 0)
		time.Sleep(patience[0] / 2)
		d.begin(t.Context(), 1, 2)
		time.Sleep(patience[1] + tick)
		synctest.Wait()
		if all := d.statements(); !slices.EqualFunc(all, [][]int{{0}, {1}, {2}}, slices.Equal) {
			t.Errorf("asked %v", all)
		}
		close(d.let)
	})
}

// Whatever goes wrong, everybody hears of it, and the next are asked for.
func TestAPanicIsAnErrorOfThoseItConcerns(t *testing.T) {
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
		time.Sleep(patience[0]) // one of them asks for all
		late := d.begin(t.Context(), 15, 13)
		close(d.let)
		for _, one := range append(unlucky, late...) {
			if got := <-one; got.err == nil || !strings.Contains(got.err.Error(), "thirteen") {
				t.Errorf("%+v", got)
			}
		}
		if got := <-d.begin(t.Context(), 4)[0]; got.err != nil || got.answer != 8 {
			t.Errorf("%+v", got)
		}
	})
}

// A statement that takes 600 ms is slower than it should be, and no reason to fail a caller who has a second. Each
// caller here comes 20 ms after the one before it.
func TestAsk_SlowStatementFailsNoCallerBeforeItsOwnDeadline(t *testing.T) {
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
							t.Errorf("caller %d: %d, %v after %v of its second", i, answer, err, time.Since(began))
						}
					})
					time.Sleep(apart)
				}
				all.Wait()
			})
		})
	}
}

// The time of a statement begins with the statement, whoever asks in it.
func TestAsk_StatementHasItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		d.begin(t.Context(), 0)
		late, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		first, second := d.begin(late, 1)[0], d.begin(t.Context(), 2)[0]
		time.Sleep(patience[0])
		synctest.Wait()
		if last := d.last(); !slices.Equal(last, []int{1, 2}) {
			t.Fatalf("asked %v", d.statements())
		}
		if got := <-first; !errors.Is(got.err, context.DeadlineExceeded) || time.Since(began) != 100*time.Millisecond {
			t.Errorf("the one with a tenth of a second: %+v after %v", got, time.Since(began))
		}
		if got := <-second; !errors.Is(got.err, context.DeadlineExceeded) || time.Since(began) != patience[0]+d.Within {
			t.Errorf("the one with all the time: %+v after %v", got, time.Since(began))
		}
		close(d.let)
	})
}

// A question that is asked by itself has the time of its asker.
func TestAsk_QuestionAskedByItselfEndsWithItsAsker(t *testing.T) {
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

// A writer learns what became of its write, even if that takes longer than its context lasts.
func TestAsk_WriterStaysUntilTheOutcomeIsKnown(t *testing.T) {
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

// In company that hangs, a few questions at a time are asked by themselves as well.
func TestAsk_QuestionInHangingCompanyIsAskedByItself(t *testing.T) {
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
		all := d.begin(t.Context(), 1, 2)
		for i, one := range all {
			if got := <-one; got.err != nil || got.answer != 2*(i+1) || time.Since(began) > d.Alone+tick {
				t.Errorf("%+v after %v", got, time.Since(began))
			}
		}
		close(d.let)
		synctest.Wait()
		if d.underWay != 0 || d.alone != 0 || len(d.waiting) != 0 {
			t.Errorf("%d under way, %d alone and %d waiting when all are answered", d.underWay, d.alone, len(d.waiting))
		}
	})
}

// As many go alone as MostAlone says: a Postgres that is slow as a whole is not asked everything twice.
func TestAsk_FewGoAloneAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		d.Alone, d.MostAlone = 100*time.Millisecond, 2
		d.begin(t.Context(), 0)
		all := d.begin(t.Context(), 1, 2, 3, 4, 5)
		time.Sleep(400 * time.Millisecond)
		synctest.Wait()
		if sent := d.statements(); len(sent) != 4 {
			t.Errorf("asked %v, want the first, the company and two alone", sent)
		}
		close(d.let)
		for i, one := range all {
			if got := <-one; got.err != nil || got.answer != 2*(i+1) {
				t.Errorf("%+v", got)
			}
		}
	})
}
