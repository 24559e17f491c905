package worker

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/almonerhq/almoner/shared/server"
)

const (
	pollEvery        = time.Second
	workspacesAtOnce = 4   // whose submissions one process processes
	batchSize        = 100 // submissions
	// lookBack is the age of the oldest submissions that a process looks for. Once in lookFurtherEvery it looks for older
	// ones, too, which exist only if no process ran. The fewer months are read, the better.
	lookBack         = 24 * time.Hour
	lookFurtherEvery = time.Minute
	// gather is how long a process waits after submissions arrived, so that it processes several together: one batch
	// costs about as much as two single ones.
	gather = 20 * time.Millisecond
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

// processSubmissions processes submissions until ctx ends. When none is left, it waits until this process accepts
// some, or for pollEvery: other processes accept them, too.
func (w *Worker) processSubmissions(ctx context.Context) {
	furthest := time.Now() // when it last looked at all months
	for further := true; ctx.Err() == nil; further = time.Since(furthest) >= lookFurtherEvery {
		since := time.Now().Add(-lookBack)
		if further {
			furthest, since = time.Now(), time.Time{}
		}
		more, err := round(ctx, w.Store, since)
		if err != nil {
			w.Log.ErrorContext(ctx, "submissions not processed; retrying", "cause", err)
		}
		switch {
		case more:
			continue
		case err != nil:
			server.Pause(ctx, restFor)
		default:
			select {
			case <-ctx.Done():
			case <-w.Store.Arrived():
			case <-time.After(pollEvery):
			}
		}
		server.Pause(ctx, gather)
	}
}

// round processes a batch of submissions of each workspace, and reports whether one of them may have more. It begins
// at a random workspace, so that processes do not all work on the same ones.
func round(ctx context.Context, store Submissions, since time.Time) (more bool, err error) {
	var group errgroup.Group
	group.SetLimit(workspacesAtOnce)
	var left atomic.Bool
	first, turned := uuid.New(), false
	for after := first; ctx.Err() == nil && err == nil; {
		var next uuid.UUID
		if next, err = store.NextWaiting(ctx, after, since); err != nil {
			break
		}
		if next == uuid.Nil && !turned {
			turned, after = true, uuid.Nil
			continue
		}
		if next == uuid.Nil || turned && bytes.Compare(next[:], first[:]) > 0 {
			break
		}
		group.Go(func() error {
			n, err := store.ProcessWaiting(ctx, next, since, batchSize)
			if n == batchSize {
				left.Store(true)
			}
			return err
		})
		after = next
	}
	err = errors.Join(err, group.Wait())
	return left.Load(), err
}
