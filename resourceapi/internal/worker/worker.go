// Package worker answers: when does a submission that was accepted come to its end?
//
// Its job is put into a queue (River, in the same database) by the transaction that accepts it, and worked off here by
// whichever process is free. A job may run more than once, as after a crash; that it has one effect is the work's own
// doing (E5 of package engage). Nothing is lost either: a job whose process died is taken up again after a minute, and
// one that fails is tried again, a little later each time, until its submission is rejected.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

const (
	atOnce       = 4                // jobs of one process
	longest      = 25 * time.Second // of one run
	abandoned    = time.Minute      // a job that runs longer lost its process
	pollEvery    = time.Second
	tries        = 10 // the last one ends in a rejection
	stopWithin   = 15 * time.Second
	restFor      = 3 * time.Second // before the queue is asked again after it could not be reached
	neverDiscard = 10_000          // River must not give a job up before we have rejected its submission
)

// job is what is stored of the work: which submission it is.
type job struct {
	Submission uuid.UUID `json:"submission"`
}

// Kind names this sort of job in the database.
func (job) Kind() string { return "engage_submission" }

// A Queue takes jobs into transactions of type Tx.
type Queue[Tx any] struct{ client *river.Client[Tx] }

// NewQueue makes a queue that adds jobs and runs none, in the tables of the schema.
func NewQueue[Tx any](driver riverdriver.Driver[Tx], schema string) (*Queue[Tx], error) {
	client, err := river.NewClient(driver, &river.Config{Schema: schema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("make the job queue: %w", err)
	}
	return &Queue[Tx]{client}, nil
}

// Add puts the job of a submission into the transaction. waiting is how many submissions of its workspace wait already.
func (q *Queue[Tx]) Add(ctx context.Context, tx Tx, submission uuid.UUID, waiting int) error {
	_, err := q.client.InsertTx(
		ctx,
		tx,
		job{submission},
		&river.InsertOpts{MaxAttempts: neverDiscard, Priority: priority(waiting)},
	)
	return err
}

// priority lets a workspace with few submissions go before one with many: River works on 1 first and on 4 last. So a
// form that is flooded delays its own workspace.
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

// Submissions brings submissions to their end.
type Submissions interface {
	// Process may be called any number of times and has one effect.
	Process(ctx context.Context, submission uuid.UUID) error
	// Reject ends a submission that has no end yet.
	Reject(ctx context.Context, submission uuid.UUID, reason string) error
}

// A Worker works jobs off.
type Worker[Tx any] struct {
	make func() (*river.Client[Tx], error)
	log  *slog.Logger
}

// New makes a worker that sleeps until Run.
func New[Tx any](
	driver riverdriver.Driver[Tx],
	schema string,
	submissions Submissions,
	log *slog.Logger,
) (*Worker[Tx], error) {
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, &processor{submissions: submissions}); err != nil {
		return nil, fmt.Errorf("make the worker: %w", err)
	}
	return &Worker[Tx]{log: log, make: func() (*river.Client[Tx], error) {
		return river.NewClient(driver, &river.Config{
			Schema:               schema,
			Workers:              workers,
			Logger:               log,
			Queues:               map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: atOnce}},
			FetchPollInterval:    pollEvery,
			JobTimeout:           longest,
			RescueStuckJobsAfter: abandoned,
			ReindexerIndexNames:  []string{}, // the indexes are the owner's, and so is keeping them in order
		})
	}}, nil
}

// Run works until ctx ends, then finishes what it has begun.
func (w *Worker[Tx]) Run(ctx context.Context) {
	for ctx.Err() == nil {
		client, err := w.make()
		if err == nil {
			err = client.Start(context.WithoutCancel(ctx))
		}
		if err == nil {
			<-ctx.Done()
			w.stop(ctx, client)
			return
		}
		w.log.ErrorContext(ctx, "submissions cannot be processed now and will be tried again", "cause", err)
		select {
		case <-ctx.Done():
		case <-time.After(restFor):
		}
	}
}

func (w *Worker[Tx]) stop(ctx context.Context, client *river.Client[Tx]) {
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if err := client.Stop(patience); err != nil {
		w.log.WarnContext(
			ctx,
			"a submission was being processed when the worker stopped; another will take it up",
			"cause",
			err,
		)
	}
}

// processor is what River calls for each job.
type processor struct {
	river.WorkerDefaults[job]
	submissions Submissions
}

// Work runs one job. Its error makes River try again later.
func (p *processor) Work(ctx context.Context, j *river.Job[job]) error {
	err := p.submissions.Process(ctx, j.Args.Submission)
	if err == nil || j.Attempt < tries {
		return err
	}
	if rejecting := p.submissions.Reject(ctx, j.Args.Submission, engage.ReasonFailed); rejecting != nil {
		return errors.Join(err, rejecting)
	}
	return river.JobCancel(err)
}
