package grant

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/store"
)

// givenUp takes back the steps of tries that were answered with 503 although a store may have taken them (G10). The Ledger is told at once,
// and in the background for as long as it does not answer; until then the grant's requests are 503, and neither store decides about it.
type givenUp struct {
	ledger Ledger
	log    *slog.Logger

	mu     sync.Mutex
	grants map[uuid.UUID]*taking
}

// A taking is what is to be taken back of one grant.
type taking struct {
	steps []Step
	done  chan struct{}
}

const (
	giveUpTime  = 75 * time.Millisecond // for the Ledger to answer while a client waits
	giveUpPause = 50 * time.Millisecond
	waitTime    = 25 * time.Millisecond
)

func newGivenUp(ledger Ledger, log *slog.Logger) *givenUp {
	return &givenUp{ledger: ledger, log: log, grants: map[uuid.UUID]*taking{}}
}

// wait waits until nothing of the grant is left to be taken back, for a moment. Its error is store.ErrUnavailable.
func (g *givenUp) wait(ctx context.Context, id uuid.UUID) error {
	g.mu.Lock()
	one := g.grants[id]
	g.mu.Unlock()
	if one == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, waitTime)
	defer cancel()
	select {
	case <-one.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: a decision about the grant is being taken back", store.ErrUnavailable)
	}
}

// add takes a step back.
func (g *givenUp) add(ctx context.Context, step Step) {
	g.mu.Lock()
	one, taking := g.grants[step.GrantID], false
	if one == nil {
		one, taking = g.begin(step.GrantID), true
	}
	one.steps = append(one.steps, step)
	g.mu.Unlock()
	if !taking {
		return // with those before it
	}
	ctx = context.WithoutCancel(ctx)
	if g.takeBack(ctx, one, giveUpTime) {
		return
	}
	g.log.WarnContext(ctx, "a decision cannot be taken back yet: its grant's requests are answered 503", "grant_id", step.GrantID)
	go func() {
		for !g.takeBack(ctx, one, time.Second) {
			time.Sleep(giveUpPause)
		}
	}()
}

// begin is called with mu held.
func (g *givenUp) begin(id uuid.UUID) *taking {
	one := &taking{done: make(chan struct{})}
	g.grants[id] = one
	return one
}

// takeBack tells the Ledger, and reports whether all of a grant's steps are taken back.
func (g *givenUp) takeBack(ctx context.Context, one *taking, within time.Duration) bool {
	for finished := false; !finished; {
		g.mu.Lock()
		step := one.steps[0]
		g.mu.Unlock()
		if !g.told(ctx, step, within) {
			return false
		}
		g.mu.Lock()
		one.steps = one.steps[1:]
		if finished = len(one.steps) == 0; finished {
			delete(g.grants, step.GrantID)
			close(one.done)
		}
		g.mu.Unlock()
	}
	return true
}

func (g *givenUp) told(ctx context.Context, step Step, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return g.ledger.GiveUp(ctx, step) == nil
}
