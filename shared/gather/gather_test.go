package gather

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
	Gathering[int, int]
	let chan error

	mu    sync.Mutex
	asked [][]int
}

func newDoubler() *doubler {
	d := &doubler{let: make(chan error)}
	d.Most, d.AtOnce = 64, 1
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
			answer, err := d.Ask(ctx, number)
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
			time.Sleep(patience - time.Nanosecond)
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
		time.Sleep(2 * patience)
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

// Whoever hangs up before the question was asked takes it along; whoever hangs up afterwards hears what came of it, and so do the others.
func TestWhoLeavesIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
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
		time.Sleep(patience / 2)
		d.begin(t.Context(), 1, 2)
		time.Sleep(3 * patience)
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
		time.Sleep(patience) // one of them asks for all
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

// A statement has the time that is left to whoever has waited longest.
func TestWhoWaitedLongestSaysUntilWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		d.begin(t.Context(), 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		for _, one := range slices.Concat(d.begin(ctx, 1), d.begin(t.Context(), 2)) {
			if got := <-one; !errors.Is(got.err, context.DeadlineExceeded) || time.Since(began) != time.Second {
				t.Errorf("%+v after %s", got, time.Since(began))
			}
		}
		close(d.let)
	})
}
