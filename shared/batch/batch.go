// Package batch asks PostgreSQL together what concurrent requests ask it.
package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// patience is how long a question waits for a statement to end; then the next statement begins beside it. Each
// statement that begins so makes the next one wait longer: one that hangs is a fault of its own, and several that take
// their time are a Postgres that is slow, of which evenly spread statements ask least.
var patience = [mostHanging]time.Duration{10 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond}

const (
	mostHanging = 3                     // statements that begin so
	tick        = 10 * time.Millisecond // how often a waiting asker looks whether it may do more than wait
)

// A Batcher asks the questions of concurrent requests together: what comes while a statement is under way is asked by
// the next one, and nobody waits for company. A statement costs Postgres and us many times what one more row in it
// does. A question is asked after it has come, never answered by what was read before. A statement that hangs holds up
// what came with it alone. It is safe for concurrent use once its exported fields are set.
type Batcher[Question, Answer any] struct {
	// Answer has an answer for each question, in their order, or an error. Its context ends after Within. A question
	// that is read by itself has no more time than its asker. An asker who hangs up does no harm to the others.
	Answer func(context.Context, []Question) ([]Answer, error)
	// Most is how many questions one statement asks at most.
	Most int
	// AtOnce is how many statements are under way at once where none hangs.
	AtOnce int
	// Within is how long one statement may take. It begins with the statement, so that no asker fails because another
	// one came earlier.
	Within time.Duration
	// Stay keeps an asker whose question is being asked until the outcome is known, for statements that write. Other
	// askers leave when their context ends.
	Stay bool
	// Alone is 0, or how long an asker waits in company. Then its question is asked by itself as well, for the company
	// may be what takes so long, and the answer that comes first counts. At most MostAlone questions are asked so at
	// once. Not for statements that write.
	Alone     time.Duration
	MostAlone int

	mu              sync.Mutex
	underWay, alone int
	waiting         []*asked[Question, Answer]
}

type asked[Question, Answer any] struct {
	ctx      context.Context
	question Question
	came     time.Time
	answer   Answer
	err      error
	done     chan struct{}
}

// ErrUnasked says that a question was never asked, because its context ended before its turn came.
var ErrUnasked = errors.New("not asked")

// Do returns the answer once it is known. The context bounds the wait: an asker whose turn has not come by then gets
// ErrUnasked.
func (g *Batcher[Q, A]) Do(ctx context.Context, question Q) (A, error) {
	mine := newAsked[Q, A](ctx, question)
	if g.enter(mine) {
		g.settle([]*asked[Q, A]{mine})
		return mine.answer, mine.err
	}
	mine.came = time.Now()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var byItself *asked[Q, A]
	var byItselfDone <-chan struct{}
	for {
		select {
		case <-mine.done:
			return mine.answer, mine.err
		case <-byItselfDone:
			g.leave(mine)
			return byItself.answer, byItself.err
		case <-ticker.C:
			if all := g.insist(mine); len(all) > 0 {
				go g.settle(all)
			}
			if byItself == nil && g.mayGoAlone(mine) {
				byItself = newAsked[Q, A](ctx, question)
				byItselfDone = byItself.done
				go g.goAlone(byItself)
			}
		case <-ctx.Done():
			if left := g.leave(mine); left && byItself == nil {
				return mine.answer, fmt.Errorf("%w: %w", ErrUnasked, ctx.Err())
			}
			if !g.Stay {
				var none A
				return none, ctx.Err()
			}
			<-mine.done
			return mine.answer, mine.err
		}
	}
}

func newAsked[Q, A any](ctx context.Context, question Q) *asked[Q, A] {
	return &asked[Q, A]{ctx: ctx, question: question, done: make(chan struct{})}
}

// mayGoAlone says whether mine has waited long enough in company to be asked by itself, and makes room for that.
func (g *Batcher[Q, A]) mayGoAlone(mine *asked[Q, A]) bool {
	if g.Alone == 0 || time.Since(mine.came) < g.Alone {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.alone >= g.MostAlone {
		return false
	}
	g.alone++
	return true
}

// goAlone asks one question by itself. It is not cut off when the company answers first: that would cost a connection.
func (g *Batcher[Q, A]) goAlone(one *asked[Q, A]) {
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.alone--
	}()
	g.ask([]*asked[Q, A]{one})
}

// enter says whether mine may be asked at once. Otherwise it waits.
func (g *Batcher[Q, A]) enter(mine *asked[Q, A]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.underWay < g.AtOnce {
		g.underWay++
		return true
	}
	g.waiting = append(g.waiting, mine)
	return false
}

// insist takes who waits for one statement more, where mine is among them, has waited long enough, and not too many are
// under way.
func (g *Batcher[Q, A]) insist(mine *asked[Q, A]) []*asked[Q, A] {
	g.mu.Lock()
	defer g.mu.Unlock()
	beside := max(0, g.underWay-g.AtOnce)
	if beside >= mostHanging || time.Since(mine.came) < patience[beside] ||
		slices.Index(g.waiting[:min(len(g.waiting), g.Most)], mine) < 0 {
		return nil
	}
	g.underWay++
	return g.take()
}

// leave says whether mine was still waiting. It does not any more.
func (g *Batcher[Q, A]) leave(mine *asked[Q, A]) bool {
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
func (g *Batcher[Q, A]) settle(all []*asked[Q, A]) {
	defer func() {
		if next := g.next(); len(next) > 0 {
			go g.settle(next)
		}
	}()
	g.ask(all)
}

// ask asks all of them in one statement.
func (g *Batcher[Q, A]) ask(all []*asked[Q, A]) {
	questions := make([]Q, len(all))
	for i, one := range all {
		questions[i] = one.question
	}
	end := time.Now().Add(g.Within)
	if own, bounded := all[0].ctx.Deadline(); len(all) == 1 && !g.Stay && bounded && own.Before(end) {
		end = own
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(all[0].ctx), end)
	defer cancel()
	answers, err := g.answer(ctx, questions)
	for i, one := range all {
		if one.err = err; err == nil {
			one.answer = answers[i]
		}
		close(one.done)
	}
}

// answer is Answer, whose panic is an error here: it would end the process, or leave waiting those who are in the same
// statement.
func (g *Batcher[Q, A]) answer(ctx context.Context, questions []Q) (answers []A, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	return g.Answer(ctx, questions)
}

// next takes who waits. Where that is nobody, one statement less is under way.
func (g *Batcher[Q, A]) next() []*asked[Q, A] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.underWay--
		return nil
	}
	return g.take()
}

// take takes who waits. Its caller holds the lock.
func (g *Batcher[Q, A]) take() []*asked[Q, A] {
	taken := slices.Clone(g.waiting[:min(len(g.waiting), g.Most)])
	g.waiting = slices.Delete(g.waiting, 0, len(taken))
	return taken
}
