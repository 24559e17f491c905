// Package imports answers: when does an accepted import become programmes?
//
// Soon, and once in effect: a worker takes one waiting import after the other, of one workspace after the other
// (contract, section 6). What it takes and what it makes of it is one transaction of the store's, so a worker that dies
// leaves the import waiting as it was.
package imports

import (
	"context"
	"log/slog"
	"time"
)

// lookEvery is how often the worker looks for imports: its own instance's, other instances', and those left behind.
const lookEvery = 250 * time.Millisecond

// restFor is how long the worker lets a store be that has just failed it.
const restFor = 5 * time.Second

// Store holds the imports that wait.
type Store interface {
	// ProcessImport processes an import of the workspace whose turn it is, and says whether there was one.
	ProcessImport(ctx context.Context) (found bool, err error)
}

// A Worker processes imports.
type Worker struct {
	store Store
	log   *slog.Logger
}

// NewWorker makes a worker that sleeps until Run.
func NewWorker(store Store, log *slog.Logger) *Worker {
	return &Worker{store, log}
}

// Run works until ctx ends, and finishes what it has begun.
func (w *Worker) Run(ctx context.Context) {
	for ctx.Err() == nil {
		found, err := w.store.ProcessImport(ctx)
		switch {
		case err != nil:
			w.log.ErrorContext(ctx, "imports cannot be processed now and will be tried again", "cause", err)
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
