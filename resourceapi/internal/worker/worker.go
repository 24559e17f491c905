// Package worker processes accepted submissions and imports, assigns sequences to events, and delivers events to
// webhook endpoints.
//
// The transaction that accepts a submission adds its job to a queue (River, in the same database), and any process
// may run it. A job may run more than once, for example after a crash; Store.Process has one effect anyway (E5
// of package engage). No job is lost: a job whose process died is restarted after a minute, and a failed one is retried
// with growing delays, until its submission is rejected. A sweep adds jobs that are missing.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"github.com/almonerhq/almoner/shared/server"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

const (
	atOnce       = 4                // jobs of one process
	longest      = 25 * time.Second // limit of one run
	abandoned    = time.Minute      // a job that runs longer has lost its process
	pollEvery    = time.Second
	tries        = 10 // the last one ends in a rejection
	stopWithin   = 15 * time.Second
	restFor      = 3 * time.Second // pause after the queue could not be reached
	neverDiscard = 10_000          // River must not give up a job before its submission is rejected
)

// job is the stored arguments of a job.
type job struct {
	Submission uuid.UUID `json:"submission"`
	Workspace  uuid.UUID `json:"workspace"` // zero in a job that an earlier release added
}

// Kind returns the type of the job in the database.
func (job) Kind() string { return "engage_submission" }

// InsertOpts implements river.JobArgsWithInsertOpts. Add sets a higher priority.
func (job) InsertOpts() river.InsertOpts {
	return river.InsertOpts{MaxAttempts: neverDiscard, Priority: sweptPriority, UniqueOpts: unfinished}
}

// A Queue adds jobs within transactions of type Tx.
type Queue[Tx any] struct{ client *river.Client[Tx] }

// NewQueue returns a queue that adds jobs to the tables of the schema and runs none.
func NewQueue[Tx any](driver riverdriver.Driver[Tx], schema string) (*Queue[Tx], error) {
	client, err := river.NewClient(driver, &river.Config{Schema: schema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("make the job queue: %w", err)
	}
	return &Queue[Tx]{client}, nil
}

// Add adds the job of a submission to the transaction. waiting is how many submissions of its workspace already wait.
func (q *Queue[Tx]) Add(ctx context.Context, tx Tx, workspaceID, submission uuid.UUID, waiting int) error {
	_, err := q.client.InsertTx(ctx, tx, job{submission, workspaceID}, &river.InsertOpts{Priority: priority(waiting)})
	return err
}

// priority prefers the jobs of workspaces with few waiting submissions: River runs 1 first and 4 last. So a flooded
// form delays only its own workspace.
func priority(waiting int) int {
	switch {
	case waiting < 10:
		return 1
	case waiting < 50:
		return 2
	case waiting < 250:
		return 3
	}
	return 4
}

// Store finishes submissions, and assigns sequences to events. A request that reads events assigns them
// too, in one step.
type Store interface {
	// Process may be called any number of times and has one effect. A zero workspaceID stands for any workspace.
	Process(ctx context.Context, workspaceID, submission uuid.UUID) error
	// Reject rejects a submission that is not finished.
	Reject(ctx context.Context, workspaceID, submission uuid.UUID, reason string) error
	// Accepted returns the workspaces of the oldest submissions that have waited for at least the given time, by the
	// ids of the submissions. It returns at most limit of them.
	Accepted(ctx context.Context, waiting time.Duration, limit int) (map[uuid.UUID]uuid.UUID, error)
	// WorkspacesBehind returns up to limit workspaces with events that may have no sequence after the last step.
	WorkspacesBehind(ctx context.Context, limit int) ([]uuid.UUID, error)
	// NumberEvents assigns sequences to a bounded number of events, and reports whether others may be left.
	NumberEvents(ctx context.Context, workspaceID uuid.UUID) (behind bool, err error)
}

// A Worker runs jobs.
type Worker[Tx any] struct {
	Deps
	driver  riverdriver.Driver[Tx]
	workers *river.Workers
}

// Deps are the dependencies of a Worker.
type Deps struct {
	Schema   string // of the queue's tables
	Store    Store
	Webhooks Webhooks
	Log      *slog.Logger
}

// New returns a worker that starts with Run.
func New[Tx any](driver riverdriver.Driver[Tx], d Deps) *Worker[Tx] {
	w := &Worker[Tx]{d, driver, river.NewWorkers()}
	river.AddWorker(w.workers, river.WorkFunc(w.process))
	return w
}

func (w *Worker[Tx]) newClient() (*river.Client[Tx], error) {
	return river.NewClient(w.driver, &river.Config{
		Schema:  w.Schema,
		Workers: w.workers,
		Logger:  w.Log,
		Queues: map[string]river.QueueConfig{
			river.QueueDefault: {MaxWorkers: atOnce},
		},
		FetchPollInterval:    pollEvery,
		JobTimeout:           longest,
		RescueStuckJobsAfter: abandoned,
		ReindexerIndexNames:  []string{}, // the indexes belong to the database owner, who maintains them
	})
}

// Run works until ctx ends, then completes the jobs in progress.
func (w *Worker[Tx]) Run(ctx context.Context) {
	for ctx.Err() == nil {
		client, err := w.newClient()
		if err == nil {
			err = client.Start(context.WithoutCancel(ctx))
		}
		if err == nil {
			var group sync.WaitGroup
			group.Go(func() { w.addMissingJobs(ctx, client) })
			group.Go(func() { w.numberEvents(ctx) })
			w.sendWebhooks(ctx)
			group.Wait()
			w.stop(ctx, client)
			return
		}
		w.Log.ErrorContext(ctx, "submissions not processed and webhooks not sent; retrying", "cause", err)
		server.Pause(ctx, restFor)
	}
}

func (w *Worker[Tx]) stop(ctx context.Context, client *river.Client[Tx]) {
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if err := client.Stop(stopCtx); err != nil {
		w.Log.WarnContext(ctx, "worker stopped during a job; another worker will run it", "cause", err)
	}
}

// process runs the job of a submission. If it returns an error, River retries later.
func (w *Worker[Tx]) process(ctx context.Context, j *river.Job[job]) error {
	err := w.Store.Process(ctx, j.Args.Workspace, j.Args.Submission)
	if err == nil || j.Attempt < tries {
		return err
	}
	rejecting := w.Store.Reject(ctx, j.Args.Workspace, j.Args.Submission, engage.ReasonFailed)
	if rejecting != nil {
		return errors.Join(err, rejecting)
	}
	return river.JobCancel(err)
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
func (w *Worker[Tx]) addMissingJobs(ctx context.Context, client *river.Client[Tx]) {
	for server.Pause(ctx, sweepInterval); ctx.Err() == nil; server.Pause(ctx, sweepInterval) {
		if err := sweep(ctx, client, w.Store); err != nil && ctx.Err() == nil {
			w.Log.WarnContext(ctx, "cannot look for submissions without a job; retrying", "cause", err)
		}
	}
}

func sweep[Tx any](ctx context.Context, client *river.Client[Tx], store Store) error {
	waiting, err := store.Accepted(ctx, sweepAfter, maxSwept)
	if err != nil {
		return err
	}
	return insertEach(ctx, client, waiting, func(submission, workspaceID uuid.UUID) river.JobArgs {
		return job{submission, workspaceID}
	})
}

// insertEach adds a job for each record. workspaces are by the ids of the records.
func insertEach[Tx any](
	ctx context.Context, client *river.Client[Tx], workspaces map[uuid.UUID]uuid.UUID,
	job func(id, workspaceID uuid.UUID) river.JobArgs,
) error {
	var jobs []river.InsertManyParams
	for id, workspaceID := range workspaces {
		jobs = append(jobs, river.InsertManyParams{Args: job(id, workspaceID)})
	}
	if len(jobs) == 0 {
		return nil
	}
	_, err := client.InsertMany(ctx, jobs)
	return err
}

// unfinished permits one unfinished job with the same arguments.
var unfinished = river.UniqueOpts{ByArgs: true, ByState: []rivertype.JobState{
	rivertype.JobStateAvailable,
	rivertype.JobStatePending,
	rivertype.JobStateRetryable,
	rivertype.JobStateRunning,
	rivertype.JobStateScheduled,
}}
