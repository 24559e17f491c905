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

// undoQueue takes back the steps of tries that were answered with 503 although a store may have taken them (G10).
// Postgres is told at once, and in the background for as long as it does not answer; until then the grant's requests
// are 503, and neither store decides about it.
type undoQueue struct {
	store GrantStore
	log   *slog.Logger

	mu     sync.Mutex
	grants map[uuid.UUID]*pendingUndo
}

// A taking is what is to be taken back of one grant.
type pendingUndo struct {
	steps []Step
	done  chan struct{}
}

const (
	giveUpTime  = 75 * time.Millisecond // for Postgres to answer while a client waits
	giveUpPause = 50 * time.Millisecond
	waitTime    = 25 * time.Millisecond
)

func newUndoQueue(ledger GrantStore, log *slog.Logger) *undoQueue {
	return &undoQueue{store: ledger, log: log, grants: map[uuid.UUID]*pendingUndo{}}
}

// wait waits until nothing of the grant is left to be taken back, for a moment. Its error is store.ErrUnavailable.
func (g *undoQueue) wait(ctx context.Context, id uuid.UUID) error {
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
func (g *undoQueue) add(ctx context.Context, step Step) {
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
	if g.undoAll(ctx, one, giveUpTime) {
		return
	}
	g.log.WarnContext(
		ctx,
		"a decision cannot be taken back yet: its grant's requests are answered 503",
		"grant_id",
		step.GrantID,
	)
	go func() {
		for !g.undoAll(ctx, one, time.Second) {
			time.Sleep(giveUpPause)
		}
	}()
}

// begin is called with mu held.
func (g *undoQueue) begin(id uuid.UUID) *pendingUndo {
	one := &pendingUndo{done: make(chan struct{})}
	g.grants[id] = one
	return one
}

// undoAll tells Postgres, and reports whether all of a grant's steps are taken back.
func (g *undoQueue) undoAll(ctx context.Context, one *pendingUndo, within time.Duration) bool {
	for finished := false; !finished; {
		g.mu.Lock()
		step := one.steps[0]
		g.mu.Unlock()
		if !g.undo(ctx, step, within) {
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

func (g *undoQueue) undo(ctx context.Context, step Step, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return g.store.GiveUp(ctx, step) == nil
}
