package worker

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/almonerhq/almoner/shared/server"
)

const (
	pollEvery        = time.Second
	workspacesAtOnce = 4   // whose submissions one process processes
	batchSize        = 100 // submissions
	// lookBack is the age of the oldest submissions that a process looks for. Once in lookFurtherEvery it looks for
	// older ones, too, which exist only if no process ran. The fewer months are read, the better.
	lookBack         = 24 * time.Hour
	lookFurtherEvery = time.Minute
	// gather is how long a process waits after submissions arrived, so that it processes several together: one batch
	// costs about as much as two single ones.
	gather = 50 * time.Millisecond
)

// Submissions are the accepted submissions of all workspaces.
type Submissions interface {
	// Arrived returns a channel that receives after this process has accepted submissions.
	Arrived() <-chan struct{}
	// NextWaiting returns the workspace with the lowest id above after that has submissions to process, or uuid.Nil.
	// It looks for those that were accepted in the month of since or later.
	NextWaiting(ctx context.Context, after uuid.UUID, since time.Time) (uuid.UUID, error)
	// ProcessWaiting finishes up to limit submissions of a workspace together and returns how many. It may be called
	// any number of times at once: each submission is finished once.
	ProcessWaiting(ctx context.Context, workspaceID uuid.UUID, since time.Time, limit int) (finished int, err error)
}

// A processor processes the submissions of some workspaces at once, one batch of each.
type processor struct {
	store Submissions
	log   *slog.Logger
	group errgroup.Group
	more  chan struct{} // receives when a workspace may have another batch
	mu    sync.Mutex
	busy  map[uuid.UUID]bool // the workspaces whose batch is being processed
}

func newProcessor(store Submissions, log *slog.Logger) *processor {
	p := &processor{store: store, log: log, more: make(chan struct{}, 1), busy: map[uuid.UUID]bool{}}
	p.group.SetLimit(workspacesAtOnce)
	return p
}

// processSubmissions processes submissions until ctx ends. When none is left, it waits until this process accepts
// some, or for pollEvery: other processes accept them, too.
func (w *Worker) processSubmissions(ctx context.Context) {
	p := newProcessor(w.Store, w.Log)
	defer func() { _ = p.group.Wait() }() // its functions return no error
	furthest := time.Now()                // when it last looked at all months
	for further := true; ctx.Err() == nil; further = time.Since(furthest) >= lookFurtherEvery {
		since := time.Now().Add(-lookBack)
		if further {
			furthest, since = time.Now(), time.Time{}
		}
		if err := p.round(ctx, since); err != nil {
			w.Log.ErrorContext(ctx, "submissions not processed; retrying", "cause", err)
			server.Pause(ctx, restFor)
			continue
		}
		select {
		case <-ctx.Done():
		case <-p.more:
		case <-p.store.Arrived():
		case <-time.After(pollEvery):
		}
		server.Pause(ctx, gather)
	}
}

// round begins to process a batch of each workspace with submissions. It begins at a random workspace, so that
// processes do not all work on the same ones.
func (p *processor) round(ctx context.Context, since time.Time) error {
	first, turned := uuid.New(), false
	for after := first; ctx.Err() == nil; {
		next, err := p.store.NextWaiting(ctx, after, since)
		if err != nil {
			return err
		}
		switch {
		case next == uuid.Nil && !turned:
			turned, after = true, uuid.Nil
			continue
		case next == uuid.Nil, turned && bytes.Compare(next[:], first[:]) > 0:
			return nil
		}
		after = next
		if p.begin(next) {
			p.group.Go(func() error { p.process(ctx, next, since); return nil })
		}
	}
	return nil
}

// begin reports whether no batch of the workspace is being processed, and notes that one is.
func (p *processor) begin(workspaceID uuid.UUID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.busy[workspaceID]
	p.busy[workspaceID] = true
	return !was
}

func (p *processor) process(ctx context.Context, workspaceID uuid.UUID, since time.Time) {
	n, err := p.store.ProcessWaiting(ctx, workspaceID, since, batchSize)
	if err != nil {
		p.log.ErrorContext(ctx, "some submissions of a workspace not processed; retrying",
			"workspace_id", workspaceID, "cause", err)
	}
	p.mu.Lock()
	delete(p.busy, workspaceID)
	p.mu.Unlock()
	if n > 0 && (err != nil || n == batchSize) {
		select {
		case p.more <- struct{}{}:
		default: // it is told already
		}
	}
}
