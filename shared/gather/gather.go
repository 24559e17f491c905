// Package gather asks PostgreSQL together what concurrent requests ask it.
package gather

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

const (
	patience    = 10 * time.Millisecond // as long as a question waits for a statement to end; then the next begins beside it
	mostHanging = 3                     // statements that begin so
)

// A Gathering asks the questions of concurrent requests together: what comes while a statement is under way is asked by the next one,
// and nobody waits for company. A statement costs Postgres and us many times what one more row in it does.
// A question is asked after it has come, never answered by what was read before. A statement that hangs holds up what came with it alone.
// It is safe for concurrent use once its exported fields are set, each to something.
type Gathering[Question, Answer any] struct {
	// Answer has an answer for each question, in their order, or an error. Its context is that of whoever has waited longest, who may hang up
	// without harm to the others.
	Answer func(context.Context, []Question) ([]Answer, error)
	// Most is how many questions one statement asks at most.
	Most int
	// AtOnce is how many statements are under way at once where none hangs.
	AtOnce int

	mu       sync.Mutex
	underWay int
	waiting  []*asked[Question, Answer]
}

type asked[Question, Answer any] struct {
	ctx      context.Context
	question Question
	answer   Answer
	err      error
	done     chan struct{}
}

// ErrUnasked says that a question was never asked, because its context ended before its turn came.
var ErrUnasked = errors.New("not asked")

// Ask returns the answer, once it is known. The context bounds the wait for its turn alone, which ends in ErrUnasked.
func (g *Gathering[Q, A]) Ask(ctx context.Context, question Q) (A, error) {
	mine := &asked[Q, A]{ctx: ctx, question: question, done: make(chan struct{})}
	if g.enter(mine) {
		g.settle([]*asked[Q, A]{mine})
		return mine.answer, mine.err
	}
	impatient := time.NewTicker(patience)
	defer impatient.Stop()
	for {
		select {
		case <-mine.done:
			return mine.answer, mine.err
		case <-impatient.C:
			if all := g.insist(mine); len(all) > 0 {
				g.settle(all)
				return mine.answer, mine.err
			}
		case <-ctx.Done():
			if g.leave(mine) {
				return mine.answer, fmt.Errorf("%w: %w", ErrUnasked, ctx.Err())
			}
			<-mine.done
			return mine.answer, mine.err
		}
	}
}

// enter says whether mine may be asked at once. Otherwise it waits.
func (g *Gathering[Q, A]) enter(mine *asked[Q, A]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.underWay < g.AtOnce {
		g.underWay++
		return true
	}
	g.waiting = append(g.waiting, mine)
	return false
}

// insist takes who waits for one statement more, where mine is among them and not too many are under way.
func (g *Gathering[Q, A]) insist(mine *asked[Q, A]) []*asked[Q, A] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.underWay >= g.AtOnce+mostHanging || slices.Index(g.waiting[:min(len(g.waiting), g.Most)], mine) < 0 {
		return nil
	}
	g.underWay++
	return g.take()
}

// leave says whether mine was still waiting. It does not any more.
func (g *Gathering[Q, A]) leave(mine *asked[Q, A]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := slices.Index(g.waiting, mine)
	if at < 0 {
		return false
	}
	g.waiting = slices.Delete(g.waiting, at, at+1)
	return true
}

// settle answers all of them. Those who wait by then come next.
func (g *Gathering[Q, A]) settle(all []*asked[Q, A]) {
	defer func() {
		if next := g.next(); len(next) > 0 {
			go g.settle(next)
		}
	}()
	questions := make([]Q, len(all))
	for i, one := range all {
		questions[i] = one.question
	}
	ctx := context.WithoutCancel(all[0].ctx)
	if end, bounded := all[0].ctx.Deadline(); bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	answers, err := g.answer(ctx, questions)
	for i, one := range all {
		if one.err = err; err == nil {
			one.answer = answers[i]
		}
		close(one.done)
	}
}

// answer is Answer, whose panic is an error here: it would end the process, or leave waiting those who are in the same statement.
func (g *Gathering[Q, A]) answer(ctx context.Context, questions []Q) (answers []A, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	return g.Answer(ctx, questions)
}

// next takes who waits. Where that is nobody, one statement less is under way.
func (g *Gathering[Q, A]) next() []*asked[Q, A] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.underWay--
		return nil
	}
	return g.take()
}

// take takes who waits. Its caller holds the lock.
func (g *Gathering[Q, A]) take() []*asked[Q, A] {
	taken := slices.Clone(g.waiting[:min(len(g.waiting), g.Most)])
	g.waiting = slices.Delete(g.waiting, 0, len(taken))
	return taken
}
