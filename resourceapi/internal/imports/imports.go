// Package imports answers: when does an accepted import become programmes?
//
// Soon, and once in effect: a worker takes one waiting import after the other (contract, section 6). What it takes and
// what it makes of it is one transaction of the store's, so a worker that dies leaves the import waiting as it was.
package imports

import (
	"context"
	"log/slog"
	"time"
)

// lookEvery is how often the worker looks without being woken: for what other instances accepted, or left behind.
const lookEvery = time.Second

// restFor is how long the worker lets a store be that has just failed it.
const restFor = 5 * time.Second

// Store holds the imports that wait.
type Store interface {
	// ProcessImport processes the import that waits longest, and says whether there was one.
	ProcessImport(ctx context.Context) (found bool, err error)
}

// A Worker processes imports. It is safe for concurrent use.
type Worker struct {
	store Store
	log   *slog.Logger
	wake  chan struct{}
}

// NewWorker makes a worker that sleeps until Run.
func NewWorker(store Store, log *slog.Logger) *Worker {
	return &Worker{store: store, log: log, wake: make(chan struct{}, 1)}
}

// Wake says that an import may be waiting. It does not block.
func (w *Worker) Wake() {
	select {
	case w.wake <- struct{}{}:
	default: // it is awake already
	}
}

// Run works until ctx ends, and finishes what it has begun.
func (w *Worker) Run(ctx context.Context) {
	for ctx.Err() == nil {
		found, err := w.store.ProcessImport(ctx)
		switch {
		case err != nil:
			w.log.ErrorContext(ctx, "imports cannot be processed now and will be tried again", "cause", err)
			sleep(ctx, restFor, nil)
		case !found:
			sleep(ctx, lookEvery, w.wake)
		}
	}
}

func sleep(ctx context.Context, duration time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-wake:
	}
}
