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

// An undoQueue undoes the steps of tries that got a 503 although a store may have committed them (G10). It reverts them
// in Postgres at once, or in the background until Postgres responds. Until then requests for the grant get a 503, and
// neither store decides about it.
type undoQueue struct {
	store GrantStore
	log   *slog.Logger

	cancelTime time.Duration // limit for Postgres while a client waits
	waitTime   time.Duration // how long other requests for the grant wait

	mu     sync.Mutex
	grants map[uuid.UUID]*pendingUndo
}

// A pendingUndo holds the steps of one grant to undo.
type pendingUndo struct {
	steps []Step
	done  chan struct{}
}

const (
	cancelTime  = 75 * time.Millisecond // default of undoQueue.cancelTime
	waitTime    = 25 * time.Millisecond // default of undoQueue.waitTime
	cancelPause = 50 * time.Millisecond
)

func newUndoQueue(store GrantStore, log *slog.Logger) *undoQueue {
	return &undoQueue{
		store:      store,
		log:        log,
		cancelTime: cancelTime,
		waitTime:   waitTime,
		grants:     map[uuid.UUID]*pendingUndo{},
	}
}

// waitFor makes the queue wait longer for Postgres; 0 changes nothing.
func (u *undoQueue) waitFor(wait time.Duration) {
	u.cancelTime, u.waitTime = max(cancelTime, wait), max(waitTime, wait)
}

// wait waits until no step of the grant is left to undo, for up to q.waitTime. Its error is store.ErrUnavailable.
func (u *undoQueue) wait(ctx context.Context, id uuid.UUID) error {
	u.mu.Lock()
	pending := u.grants[id]
	u.mu.Unlock()
	if pending == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, u.waitTime)
	defer cancel()
	select {
	case <-pending.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: a change of the grant is being undone", store.ErrUnavailable)
	}
}

// has reports whether a step of the grant is left to undo.
func (u *undoQueue) has(id uuid.UUID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.grants[id] != nil
}

// add undoes a step.
func (u *undoQueue) add(ctx context.Context, step Step) {
	u.mu.Lock()
	pending, first := u.grants[step.GrantID], false
	if pending == nil {
		pending, first = u.begin(step.GrantID), true
	}
	pending.steps = append(pending.steps, step)
	u.mu.Unlock()
	if !first {
		return // another call undoes it with the earlier steps
	}
	ctx = context.WithoutCancel(ctx)
	if u.undoAll(ctx, pending, u.cancelTime) {
		return
	}
	u.log.WarnContext(ctx, "grant change not undone yet; requests for the grant return 503", "grant_id", step.GrantID)
	go func() {
		for !u.undoAll(ctx, pending, time.Second) {
			time.Sleep(cancelPause)
		}
	}()
}

// begin is called with mu held.
func (u *undoQueue) begin(id uuid.UUID) *pendingUndo {
	pending := &pendingUndo{done: make(chan struct{})}
	u.grants[id] = pending
	return pending
}

// undoAll reverts steps in Postgres, and reports whether all steps of the grant are undone.
func (u *undoQueue) undoAll(ctx context.Context, pending *pendingUndo, within time.Duration) bool {
	for finished := false; !finished; {
		u.mu.Lock()
		step := pending.steps[0]
		u.mu.Unlock()
		if !u.undo(ctx, step, within) {
			return false
		}
		u.mu.Lock()
		pending.steps = pending.steps[1:]
		if finished = len(pending.steps) == 0; finished {
			delete(u.grants, step.GrantID)
			close(pending.done)
		}
		u.mu.Unlock()
	}
	return true
}

func (u *undoQueue) undo(ctx context.Context, step Step, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return u.store.CancelTries(ctx, step, []string{step.Nonce}) == nil
}
