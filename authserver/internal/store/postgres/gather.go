package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Statements of one kind that are under way at once, and questions that one of them answers at most. With more under way, each has fewer
// questions to answer, and costs nearly as much.
const (
	gatheringsAtOnce = 2
	mostGathered     = 32
)

// A gathering asks the questions of concurrent requests together: what comes while statements are under way is asked by the next one,
// and nobody waits for company. A statement costs Postgres and us many times what one more row in it does.
// A question is asked after it has come, never answered by what was read before.
type gathering[Question, Answer any] struct {
	// answer has an answer for each question, in their order, or an error. Its context is that of whoever has waited longest, who may hang up
	// without harm to the others.
	answer func(context.Context, []Question) ([]Answer, error)

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

// errUnasked says that a question was never asked, because its context ended before its turn came.
var errUnasked = errors.New("not asked")

// ask returns the answer, once it is known. The context bounds the wait for its turn alone, which ends in errUnasked.
func (g *gathering[Q, A]) ask(ctx context.Context, question Q) (A, error) {
	mine := &asked[Q, A]{ctx: ctx, question: question, done: make(chan struct{})}
	if g.enter(mine) {
		defer g.goOn()
		settle(g.answer, []*asked[Q, A]{mine})
		return mine.answer, mine.err
	}
	select {
	case <-mine.done:
	case <-ctx.Done():
		if g.leave(mine) {
			return mine.answer, fmt.Errorf("%w: %w", errUnasked, ctx.Err())
		}
		<-mine.done
	}
	return mine.answer, mine.err
}

// enter says whether mine may be asked at once. Otherwise it waits.
func (g *gathering[Q, A]) enter(mine *asked[Q, A]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.underWay < gatheringsAtOnce {
		g.underWay++
		return true
	}
	g.waiting = append(g.waiting, mine)
	return false
}

// leave says whether mine was still waiting. It does not any more.
func (g *gathering[Q, A]) leave(mine *asked[Q, A]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := slices.Index(g.waiting, mine)
	if at < 0 {
		return false
	}
	g.waiting = slices.Delete(g.waiting, at, at+1)
	return true
}

// goOn is for whoever is done with a statement: those who wait come next.
func (g *gathering[Q, A]) goOn() {
	if next := g.next(); len(next) > 0 {
		go func() {
			for ; len(next) > 0; next = g.next() {
				settle(g.answer, next)
			}
		}()
	}
}

// next takes who waits. Where that is nobody, one statement less is under way.
func (g *gathering[Q, A]) next() []*asked[Q, A] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.underWay--
		return nil
	}
	taken := slices.Clone(g.waiting[:min(len(g.waiting), mostGathered)])
	g.waiting = slices.Delete(g.waiting, 0, len(taken))
	return taken
}

// settle answers all of them.
func settle[Q, A any](answer func(context.Context, []Q) ([]A, error), all []*asked[Q, A]) {
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
	answers, err := answer(ctx, questions)
	for i, one := range all {
		if one.err = err; err == nil {
			one.answer = answers[i]
		}
		close(one.done)
	}
}
