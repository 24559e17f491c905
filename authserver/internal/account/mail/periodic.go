package mail

import (
	"context"
	"time"

	"github.com/riverqueue/river"
)

const (
	// periodicQueue is a separate queue, because a process of an earlier release does not know the job.
	periodicQueue    = "periodic"
	periodicPoll     = 3 * time.Second
	periodicEvery    = 10 * time.Minute
	periodicAttempts = 3 // the next job does what a failed one did not
)

// periodicJob makes one process, which River elects, queue the mails that depend on the time.
type periodicJob struct{}

// Kind returns the type of the job in the database.
func (periodicJob) Kind() string { return "periodic" }

// A periodic is called by River for each periodicJob.
type periodic struct {
	river.WorkerDefaults[periodicJob]
	queue func(ctx context.Context) error
}

// Work queues what is due. If it returns an error, River logs it and retries later.
func (p *periodic) Work(ctx context.Context, _ *river.Job[periodicJob]) error { return p.queue(ctx) }

func periodicJobs() []*river.PeriodicJob {
	return []*river.PeriodicJob{river.NewPeriodicJob(
		river.PeriodicInterval(periodicEvery),
		func() (river.JobArgs, *river.InsertOpts) {
			return periodicJob{}, &river.InsertOpts{Queue: periodicQueue, MaxAttempts: periodicAttempts}
		},
		&river.PeriodicJobOpts{RunOnStart: true},
	)}
}
