package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/riverqueue/river"
)

const (
	// sweepInterval is how often a process looks for submissions without a job.
	sweepInterval = time.Minute
	// sweepAfter is how long a submission waits before a sweep adds a job.
	sweepAfter = time.Minute
	maxSwept   = 1000 // submissions of one sweep
	// sweptPriority is lower than the priority of new submissions.
	sweptPriority = 4
)

// addMissingJobs adds a job for each waiting submission that has none, until ctx ends. A submission gets its job when
// it is accepted. In a distributed database, two nodes store them: a worker may take the job before it can see the
// submission, and finish the job without effect. A submission with an unfinished job gets no other job.
func addMissingJobs[Tx any](ctx context.Context, client *river.Client[Tx], submissions Submissions, log *slog.Logger) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := sweep(ctx, client, submissions); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "cannot look for submissions without a job; retrying", "cause", err)
		}
	}
}

func sweep[Tx any](ctx context.Context, client *river.Client[Tx], submissions Submissions) error {
	waiting, err := submissions.Accepted(ctx, sweepAfter, maxSwept)
	if err != nil || len(waiting) == 0 {
		return err
	}
	var jobs []river.InsertManyParams
	for submission, workspaceID := range waiting {
		jobs = append(jobs, river.InsertManyParams{
			Args:       job{submission, workspaceID},
			InsertOpts: &river.InsertOpts{MaxAttempts: neverDiscard, Priority: sweptPriority, UniqueOpts: unfinished},
		})
	}
	_, err = client.InsertMany(ctx, jobs)
	return err
}
