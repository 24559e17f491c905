// Package imports runs the worker that turns accepted imports into programmes.
//
// The worker takes one waiting import at a time, alternating between workspaces (contract, section 6). The store
// takes and processes an import in one transaction, so an import whose worker dies stays waiting.
package imports

import (
	"context"
	"log/slog"
	"time"
)

// lookEvery is how often the worker looks for imports of all instances.
const lookEvery = 250 * time.Millisecond

// restFor is how long the worker pauses after a failure of the store.
const restFor = 5 * time.Second

// Store stores the waiting imports.
type Store interface {
	// ProcessImport processes an import of the workspace whose turn it is, and reports whether there was one.
	ProcessImport(ctx context.Context) (found bool, err error)
}

// A Worker processes imports.
type Worker struct {
	store Store
	log   *slog.Logger
}

// NewWorker returns a worker that starts with Run.
func NewWorker(store Store, log *slog.Logger) *Worker {
	return &Worker{store, log}
}

// Run works until ctx ends, and completes an import in progress.
func (w *Worker) Run(ctx context.Context) {
	for ctx.Err() == nil {
		found, err := w.store.ProcessImport(ctx)
		switch {
		case err != nil:
			w.log.ErrorContext(ctx, "imports not processed; retrying", "cause", err)
			sleep(ctx, restFor)
		case !found:
			sleep(ctx, lookEvery)
		}
	}
}

func sleep(ctx context.Context, duration time.Duration) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
