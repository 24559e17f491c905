package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/almonerhq/almoner/shared/server"
	"github.com/almonerhq/almoner/shared/server/inflight"
)

const (
	webhookQueue       = "webhooks"
	webhookConcurrency = 64 // concurrent calls of one process; a call holds no connection to Postgres
	// maxPerWorkspace is the maximum number of concurrent calls to endpoints of one workspace, so that slow endpoints
	// do not delay other workspaces.
	maxPerWorkspace     = 4
	webhookPollInterval = time.Second // between two queries for endpoints with pending deliveries
	maxWebhookJobs      = 1000        // added after one query
	webhookAttempts     = 5           // of a job; after that, the next query adds another job
	longestRetry        = time.Minute
)

// Webhooks sends events to webhook endpoints; package app implements it with a delivery.Deliverer.
type Webhooks interface {
	// DueWebhooks returns up to limit endpoints with pending deliveries, each with its workspace.
	DueWebhooks(ctx context.Context, limit int) (map[uuid.UUID]uuid.UUID, error)
	// Deliver sends pending deliveries to one endpoint, for a few seconds at most.
	Deliver(ctx context.Context, workspaceID, endpoint uuid.UUID) error
}

// webhookJob is the stored arguments of a job. There is at most one unfinished job of an endpoint.
type webhookJob struct {
	Endpoint  uuid.UUID `json:"endpoint"`
	Workspace uuid.UUID `json:"workspace"`
}

// Kind returns the type of the job in the database.
func (webhookJob) Kind() string { return "webhook_deliveries" }

// InsertOpts implements river.JobArgsWithInsertOpts.
func (webhookJob) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: webhookQueue, MaxAttempts: webhookAttempts, UniqueOpts: unfinished}
}

// unfinished permits one unfinished job with the same arguments.
var unfinished = river.UniqueOpts{ByArgs: true, ByState: []rivertype.JobState{
	rivertype.JobStateAvailable,
	rivertype.JobStatePending,
	rivertype.JobStateRetryable,
	rivertype.JobStateRunning,
	rivertype.JobStateScheduled,
}}

// addDueWebhooks adds a job for each endpoint with pending deliveries, until ctx ends. The state of deliveries is
// stored with the endpoints, so a job that is lost is added again.
func addDueWebhooks[Tx any](ctx context.Context, client *river.Client[Tx], webhooks Webhooks, log *slog.Logger) {
	failing := func(err error) { log.ErrorContext(ctx, "webhooks not sent; retrying", "cause", err) }
	server.Pause(ctx, webhookPollInterval)
	server.Repeat(ctx, failing, func(ctx context.Context) (time.Duration, error) {
		return webhookPollInterval, addDue(ctx, client, webhooks)
	})
}

func addDue[Tx any](ctx context.Context, client *river.Client[Tx], webhooks Webhooks) error {
	due, err := webhooks.DueWebhooks(ctx, maxWebhookJobs)
	if err != nil || len(due) == 0 {
		return err
	}
	var jobs []river.InsertManyParams
	for endpoint, workspace := range due {
		jobs = append(jobs, river.InsertManyParams{Args: webhookJob{Endpoint: endpoint, Workspace: workspace}})
	}
	_, err = client.InsertMany(ctx, jobs)
	return err
}

// deliveries is called by River for each job of an endpoint.
type deliveries struct {
	river.WorkerDefaults[webhookJob]
	webhooks Webhooks
	turns    *inflight.Requests[uuid.UUID] // by workspace
}

func newDeliveries(webhooks Webhooks) *deliveries {
	bounds := inflight.Bounds{InFlight: maxPerWorkspace, AtOnce: maxPerWorkspace}
	return &deliveries{webhooks: webhooks, turns: inflight.New[uuid.UUID](bounds)}
}

// Work runs one job.
func (d *deliveries) Work(ctx context.Context, j *river.Job[webhookJob]) error {
	turn, err := d.turns.Enter(ctx, j.Args.Workspace)
	if err != nil {
		return river.JobSnooze(webhookPollInterval)
	}
	defer turn.Leave(false)
	return d.webhooks.Deliver(ctx, j.Args.Workspace, j.Args.Endpoint)
}

// NextRetry returns when a job is run again after the store did not answer.
func (d *deliveries) NextRetry(j *river.Job[webhookJob]) time.Time {
	return time.Now().Add(min(time.Second<<j.Attempt, longestRetry))
}
