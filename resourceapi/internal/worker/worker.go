// Package worker processes accepted submissions and imports, assigns sequences to events, and delivers events to
// webhook endpoints.
//
// A submission that was accepted waits in its own row, and any process may finish it: a batch of each workspace in
// turn, so that a flooded form delays only its own workspace. A process that dies has finished all of a batch or
// nothing (E5 of package engage). A submission that fails is tried again with growing delays, until it is rejected.
package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/server"
)

const (
	stopWithin = 15 * time.Second
	restFor    = 3 * time.Second // pause after Postgres could not be reached
)

// Store finishes submissions, and assigns sequences to events. A request that reads events assigns them
// too, in one step.
type Store interface {
	Submissions
	// WorkspacesBehind returns up to limit workspaces with events that may have no sequence after the last step.
	WorkspacesBehind(ctx context.Context, limit int) ([]uuid.UUID, error)
	// NumberEvents assigns sequences to a bounded number of events, and reports whether others may be left.
	NumberEvents(ctx context.Context, workspaceID uuid.UUID) (behind bool, err error)
}

// A Worker processes submissions, assigns sequences to events, and sends webhooks.
type Worker struct {
	Store    Store
	Webhooks Webhooks
	Log      *slog.Logger
}

// Run works until ctx ends, then completes what is in progress.
func (w *Worker) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { w.processSubmissions(ctx) })
	group.Go(func() { w.numberEvents(ctx) })
	w.sendWebhooks(ctx)
}

// How often a process looks for accepted imports and for accepted erasures of all instances (contract, sections 6 and
// 6a), and how long it pauses after a failure of the store.
const (
	ImportsEvery  = 250 * time.Millisecond
	ErasuresEvery = time.Second
	pollRest      = 5 * time.Second
)

// Poll returns background work that calls next until its context ends. next processes one import, or one batch of an
// erasure, for the workspaces in turn, and reports whether there was one; if not, Poll pauses for every. Work in
// progress is completed. The store takes and processes it in one transaction, so another process takes it again if this
// one dies.
func Poll(
	what string, every time.Duration, next func(context.Context) (found bool, err error), log *slog.Logger,
) func(context.Context) {
	return func(ctx context.Context) {
		for ctx.Err() == nil {
			found, err := next(ctx)
			switch {
			case err != nil:
				log.ErrorContext(ctx, what+" not processed; retrying", "cause", err)
				server.Pause(ctx, pollRest)
			case !found:
				server.Pause(ctx, every)
			}
		}
	}
}
