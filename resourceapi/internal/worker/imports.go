package worker

import (
	"context"
	"log/slog"
	"time"
)

// How often a process looks for imports and for erasures of all instances.
const (
	importsEvery  = 250 * time.Millisecond
	erasuresEvery = time.Second
)

// pollRest is how long a process pauses after a failure of the store.
const pollRest = 5 * time.Second

// ImportStore stores the waiting imports.
type ImportStore interface {
	// ProcessImport processes an import of the workspace whose turn it is, and reports whether there was one.
	ProcessImport(ctx context.Context) (found bool, err error)
}

// ErasureStore stores the accepted erasures.
type ErasureStore interface {
	// ProcessErasure deletes a batch of an erasure, and reports whether there was one.
	ProcessErasure(ctx context.Context) (found bool, err error)
}

// A Poller does one piece of work after another, and looks for more when there was none. The store takes and does a
// piece in one transaction, so a piece whose process dies is taken again.
type Poller struct {
	what  string // for the log
	next  func(ctx context.Context) (found bool, err error)
	every time.Duration
	log   *slog.Logger
}

// NewImporter returns a Poller that turns accepted imports into programmes. It takes one waiting import at a time,
// alternating between workspaces (contract, section 6).
func NewImporter(store ImportStore, log *slog.Logger) *Poller {
	return &Poller{"imports", store.ProcessImport, importsEvery, log}
}

// NewEraser returns a Poller that deletes the submissions of accepted erasures in batches, alternating between erasures
// (contract, section 6a).
func NewEraser(store ErasureStore, log *slog.Logger) *Poller {
	return &Poller{"erasures", store.ProcessErasure, erasuresEvery, log}
}

// Run works until ctx ends, and completes the work in progress.
func (w *Poller) Run(ctx context.Context) {
	for ctx.Err() == nil {
		found, err := w.next(ctx)
		switch {
		case err != nil:
			w.log.ErrorContext(ctx, w.what+" not processed; retrying", "cause", err)
			pause(ctx, pollRest)
		case !found:
			pause(ctx, w.every)
		}
	}
}

func pause(ctx context.Context, duration time.Duration) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
