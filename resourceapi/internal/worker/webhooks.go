package worker

import (
	"context"
	"errors"
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
	// followedAtOnce is how many workspaces it looks at each time, the next ones in the next round: a round does not
	// grow with the number of workspaces.
	followedAtOnce = 200
	// atOnceCalls is the maximum number of endpoints that one process sends to at once. A call holds no connection to
	// Postgres. Of them, atOnceFailing may be endpoints whose last attempt failed, so that endpoints that do not answer
	// leave room for the others.
	atOnceCalls   = 512
	atOnceFailing = 64
	// claimLasts is how long no other worker sends to an endpoint of a process that has died. It is longer than a turn
	// and the last attempt in it.
	claimLasts = delivery.Turn + delivery.Timeout + 15*time.Second
)

// Webhooks sends events to webhook endpoints; package app implements it with a delivery.Deliverer.
type Webhooks interface {
	// FollowedWorkspaces returns up to limit workspaces after one, in order, that have enabled endpoints.
	FollowedWorkspaces(ctx context.Context, after uuid.UUID, limit int) ([]delivery.Followed, error)
	// ClaimWebhooks claims up to limit endpoints of the workspaces with something to send, and up to limitFailing whose
	// last attempt failed. Nobody else claims them for as long as lasting.
	ClaimWebhooks(
		ctx context.Context, workspaces []uuid.UUID, lasting time.Duration, limit, limitFailing int,
	) ([]delivery.Claim, error)
	// ReleaseWebhook ends a claim.
	ReleaseWebhook(ctx context.Context, workspaceID, endpoint uuid.UUID) error
	// Deliver sends pending deliveries to one endpoint, for a few seconds at most.
	Deliver(ctx context.Context, workspaceID, endpoint uuid.UUID) error
}

// A sender sends events to the endpoints that it claims, to each in a goroutine.
type sender struct {
	*Worker
	group          sync.WaitGroup
	quick, failing atomic.Int64    // endpoints to which it sends
	work           context.Context // of the calls
	after          uuid.UUID       // the next round begins with the workspace after it
}

// sendWebhooks sends events to endpoints until ctx ends, then completes the deliveries in progress.
func (w *Worker) sendWebhooks(ctx context.Context) {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	s := &sender{Worker: w, work: work}
	failing := func(err error) { w.Log.ErrorContext(ctx, "webhooks not sent; retrying", "cause", err) }
	server.Repeat(ctx, failing, func(ctx context.Context) (time.Duration, error) {
		return webhookInterval, s.round(ctx)
	})
	defer time.AfterFunc(stopWithin, stop).Stop()
	s.group.Wait()
}

// round numbers the events of some workspaces with endpoints, and begins to send to the endpoints with something to
// send.
func (s *sender) round(ctx context.Context) error {
	followed, err := s.Webhooks.FollowedWorkspaces(ctx, s.after, followedAtOnce)
	if err != nil {
		return err
	}
	var failures []error
	workspaces := make([]uuid.UUID, len(followed))
	for i, one := range followed {
		workspaces[i] = one.WorkspaceID
		if one.Unread { // numberEvents numbers what one step leaves
			_, err := s.Store.NumberEvents(ctx, one.WorkspaceID)
			failures = append(failures, err)
		}
	}
	s.after = uuid.Nil
	if len(followed) == followedAtOnce {
		s.after = workspaces[followedAtOnce-1]
	}
	quick := atOnceCalls - atOnceFailing - int(s.quick.Load())
	claimed, err := s.Webhooks.ClaimWebhooks(ctx, workspaces, claimLasts, quick, atOnceFailing-int(s.failing.Load()))
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
	return errors.Join(append(failures, err)...)
}

// send sends to one endpoint for a turn.
func (s *sender) send(one delivery.Claim) {
	err := s.Webhooks.Deliver(s.work, one.WorkspaceID, one.ID)
	err = errors.Join(err, s.Webhooks.ReleaseWebhook(s.work, one.WorkspaceID, one.ID))
	if err != nil && s.work.Err() == nil {
		s.Log.WarnContext(s.work, "deliveries to a webhook endpoint interrupted; retrying", "cause", err)
	}
}
