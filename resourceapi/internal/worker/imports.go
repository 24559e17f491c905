package worker

import (
	"context"
	"log/slog"
	"time"
)

// importsEvery is how often an importer looks for imports of all instances.
const importsEvery = 250 * time.Millisecond

// importsRest is how long an importer pauses after a failure of the store.
const importsRest = 5 * time.Second

// ImportStore stores the waiting imports.
type ImportStore interface {
	// ProcessImport processes an import of the workspace whose turn it is, and reports whether there was one.
	ProcessImport(ctx context.Context) (found bool, err error)
}

// An Importer turns accepted imports into programmes. It takes one waiting import at a time, alternating between
// workspaces (contract, section 6). The store takes and processes an import in one transaction, so an import whose
// process dies stays waiting.
type Importer struct {
	store ImportStore
	log   *slog.Logger
}

// NewImporter returns an importer that starts with Run.
func NewImporter(store ImportStore, log *slog.Logger) *Importer {
	return &Importer{store, log}
}

// Run works until ctx ends, and completes an import in progress.
func (w *Importer) Run(ctx context.Context) {
	for ctx.Err() == nil {
		found, err := w.store.ProcessImport(ctx)
		switch {
		case err != nil:
			w.log.ErrorContext(ctx, "imports not processed; retrying", "cause", err)
			pause(ctx, importsRest)
		case !found:
			pause(ctx, importsEvery)
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
