package worker

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/server"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
)

const (
	maxBehind = 1000 // workspaces of one query
	// restPerStep is how long a process rests after a step, as a multiple of the time that the step took: a backlog
	// leaves Postgres to others most of the time.
	restPerStep = 3
)

// numberEvents assigns sequences to events until ctx ends: one step for each workspace that is behind, then the next.
func (w *Worker) numberEvents(ctx context.Context) {
	failing := func(err error) { w.Log.ErrorContext(ctx, "events not numbered; retrying", "cause", err) }
	server.Repeat(ctx, failing, func(ctx context.Context) (time.Duration, error) {
		behind, err := w.Store.WorkspacesBehind(ctx, maxBehind)
		for _, workspaceID := range behind {
			began := time.Now()
			_, failed := w.Store.NumberEvents(ctx, workspaceID)
			err = errors.Join(err, failed)
			server.Pause(ctx, restPerStep*time.Since(began))
		}
		if err == nil && len(behind) > 0 {
			return 0, nil
		}
		return webhookInterval, err
	})
}

const (
	// webhookInterval is how often a process looks for endpoints with something to send.
	webhookInterval = 200 * time.Millisecond
	// It looks at workspacesPerStep workspaces in a step, and after stepInterval at those that follow.
	workspacesPerStep = 200
	stepInterval      = webhookInterval / 10
	// atOnceCalls is the maximum number of endpoints that one process sends to at once. A call holds no connection to
	// Postgres. Of them, atOnceFailing may be endpoints whose last attempt failed or was slow: others have room.
	atOnceCalls   = 512
	atOnceFailing = 64
	// claimFor is how long no other worker sends to an endpoint whose process has died, or whose events could not be
	// read. It is longer than a turn and the last attempt in it.
	claimFor = delivery.Turn + delivery.Timeout + 15*time.Second
)

// Webhooks sends events to webhook endpoints; package app implements it with a delivery.Deliverer.
type Webhooks interface {
	// WorkspacesWithWebhooks returns up to limit workspaces after one, in order, that have enabled endpoints, and those
	// of them that may have events without a sequence. It returns all even if the unread ones cannot be found.
	WorkspacesWithWebhooks(ctx context.Context, after uuid.UUID, limit int) (all, unread []uuid.UUID, err error)
	// ClaimWebhooks claims up to limit endpoints of the workspaces with something to send, and up to limitFailing whose
	// last attempt failed or was slow. No other worker claims them for at least as long as lasts.
	ClaimWebhooks(
		ctx context.Context, workspaces []uuid.UUID, lasts time.Duration, limit, limitFailing int,
	) ([]delivery.Claim, error)
	// ReleaseWebhook ends a claim, unless it has ended.
	ReleaseWebhook(ctx context.Context, c delivery.Claim) error
	// Deliver sends pending deliveries to one endpoint, for a few seconds at most.
	Deliver(ctx context.Context, workspaceID, endpoint uuid.UUID) error
}

// A sender sends events to the endpoints that it claims, to each in a goroutine.
type sender struct {
	*Worker
	group          sync.WaitGroup
	quick, failing atomic.Int64    // endpoints to which it sends
	work           context.Context // of the calls
	after          uuid.UUID       // the next step begins with the workspace after it
}

// sendWebhooks sends events to endpoints until ctx ends, then completes the deliveries in progress.
func (w *Worker) sendWebhooks(ctx context.Context) {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	s := &sender{Worker: w, work: work}
	failing := func(err error) { w.Log.ErrorContext(ctx, "webhooks not sent; retrying", "cause", err) }
	server.Repeat(ctx, failing, s.step)
	defer time.AfterFunc(stopWithin, stop).Stop()
	s.group.Wait()
}

// step numbers the events of some workspaces with endpoints, and begins to send to the endpoints with something to
// send. It returns the time until the next step, which goes on with other workspaces even after an error.
func (s *sender) step(ctx context.Context) (rest time.Duration, err error) {
	workspaces, unread, err := s.Webhooks.WorkspacesWithWebhooks(ctx, s.after, workspacesPerStep)
	s.after, rest = uuid.Nil, webhookInterval
	if len(workspaces) == workspacesPerStep {
		s.after, rest = workspaces[workspacesPerStep-1], stepInterval
	}
	for _, workspaceID := range unread { // numberEvents numbers what one step leaves
		_, failed := s.Store.NumberEvents(ctx, workspaceID)
		err = errors.Join(err, failed)
	}
	quick := atOnceCalls - atOnceFailing - int(s.quick.Load())
	claimed, failed := s.Webhooks.ClaimWebhooks(ctx, workspaces, claimFor, quick, atOnceFailing-int(s.failing.Load()))
	for _, one := range claimed {
		running := &s.quick
		if one.Failing {
			running = &s.failing
		}
		running.Add(1)
		s.group.Go(func() {
			defer running.Add(-1)
			s.send(one)
		})
	}
	return rest, errors.Join(err, failed)
}

// send sends to one endpoint for a turn. After an error, such as that of an event that cannot be read, it keeps the
// claim: the endpoint rests until it ends.
func (s *sender) send(one delivery.Claim) {
	defer func() { // a panic would end the process, and the next one that claims the endpoint
		if cause := recover(); cause != nil {
			s.Log.ErrorContext(s.work, "deliveries to a webhook endpoint ended by a panic", "cause", cause,
				"stack", string(debug.Stack()))
		}
	}()
	err := s.Webhooks.Deliver(s.work, one.WorkspaceID, one.ID)
	if err == nil || s.work.Err() != nil {
		err = errors.Join(err, s.Webhooks.ReleaseWebhook(s.work, one))
	}
	if err != nil && s.work.Err() == nil {
		s.Log.WarnContext(s.work, "deliveries to a webhook endpoint interrupted; retrying", "cause", err)
	}
}
