package postgres

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A doubler answers each question with twice its number, once it is let. It notes what it was asked together.
type doubler struct {
	gathering[int, int]
	let chan error

	mu    sync.Mutex
	asked [][]int
}

func newDoubler() *doubler {
	d := &doubler{let: make(chan error)}
	d.answer = func(ctx context.Context, questions []int) ([]int, error) {
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
			answer, err := d.ask(ctx, number)
			one <- outcome{answer, err}
		}()
		synctest.Wait()
	}
	return all
}

// busy keeps as many statements under way as may be.
func (d *doubler) busy(ctx context.Context) []chan outcome {
	numbers := make([]int, gatheringsAtOnce)
	for i := range numbers {
		numbers[i] = 1000 + i
	}
	return d.begin(ctx, numbers...)
}

func TestWhatComesMeanwhileIsAskedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		first := d.busy(t.Context())
		others := d.begin(t.Context(), 1, 2, 3)
		if len(d.asked) != gatheringsAtOnce {
			t.Fatalf("asked %v while %d may be under way", d.asked, gatheringsAtOnce)
		}
		d.let <- nil
		synctest.Wait()
		if last := d.asked[len(d.asked)-1]; !slices.Equal(last, []int{1, 2, 3}) {
			t.Errorf("asked %v", d.asked)
		}
		for range gatheringsAtOnce {
			d.let <- nil
		}
		for i, one := range slices.Concat(others, first) {
			want := slices.Concat([]int{2, 4, 6}, []int{2000, 2002, 2004, 2006})[i]
			if got := <-one; got.err != nil || got.answer != want {
				t.Errorf("%d: %+v, want %d", i, got, want)
			}
		}
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

func TestNoStatementIsAskedTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		d.busy(t.Context())
		numbers := make([]int, mostGathered+1)
		d.begin(t.Context(), numbers...)
		close(d.let)
		synctest.Wait()
		sizes := []int{}
		for _, one := range d.asked[gatheringsAtOnce:] {
			sizes = append(sizes, len(one))
		}
		if !slices.Equal(sizes, []int{mostGathered, 1}) {
			t.Errorf("asked %v together", sizes)
		}
	})
}

// Whoever hangs up before the question was asked takes it along; whoever hangs up afterwards hears what came of it.
func TestWhoLeavesIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		d.busy(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		leaving, staying := d.begin(ctx, 1)[0], d.begin(t.Context(), 2)[0]
		cancel()
		if got := <-leaving; !errors.Is(got.err, errUnasked) || !errors.Is(got.err, context.Canceled) {
			t.Errorf("%+v", got)
		}
		ctx, cancel = context.WithCancel(t.Context())
		asked := d.begin(ctx, 3)[0]
		d.let <- nil
		synctest.Wait() // 2 and 3 were asked
		cancel()
		synctest.Wait()
		close(d.let)
		if got := <-asked; got.err != nil || got.answer != 6 {
			t.Errorf("%+v", got)
		}
		if got := <-staying; got.err != nil || got.answer != 4 {
			t.Errorf("%+v", got)
		}
		for _, one := range d.asked {
			if slices.Contains(one, 1) {
				t.Errorf("asked %v", d.asked)
			}
		}
	})
}

func TestAnErrorIsEverybodys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, down := newDoubler(), errors.New("down")
		d.busy(t.Context())
		all := d.begin(t.Context(), 1, 2)
		for range gatheringsAtOnce + 1 {
			d.let <- down
		}
		for _, one := range all {
			if got := <-one; !errors.Is(got.err, down) {
				t.Errorf("%+v", got)
			}
		}
	})
}

// A statement has the time that is left to whoever has waited longest.
func TestWhoWaitedLongestSaysUntilWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoubler()
		d.busy(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		all := slices.Concat(d.begin(ctx, 1), d.begin(t.Context(), 2))
		time.Sleep(time.Second / 2)
		d.let <- nil
		for _, one := range all {
			if got := <-one; !errors.Is(got.err, context.DeadlineExceeded) || time.Since(began) != time.Second {
				t.Errorf("%+v after %s", got, time.Since(began))
			}
		}
		close(d.let)
	})
}
