package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
)

const (
	behindInterval = time.Second // between two queries for workspaces with events that have no sequence
	maxBehind      = 1000        // workspaces of one query
	// restPerStep is how long a process rests after a step, as a multiple of the time that the step took: a backlog
	// leaves Postgres to others most of the time.
	restPerStep = 3
)

// Events assigns sequences to events. Reading events does it too, one step for each request.
type Events interface {
	// WorkspacesBehind returns up to limit workspaces with events that may have no sequence after the last step.
	WorkspacesBehind(ctx context.Context, limit int) ([]uuid.UUID, error)
	// NumberEvents assigns sequences to a bounded number of events, and reports whether others may be left.
	NumberEvents(ctx context.Context, workspaceID uuid.UUID) (behind bool, err error)
}

// numberEvents assigns sequences to events until ctx ends: one step for each workspace that is behind, then the next.
func numberEvents(ctx context.Context, events Events, log *slog.Logger) {
	for failing := false; ctx.Err() == nil; pause(ctx, behindInterval) {
		err := numberBacklogs(ctx, events)
		if err != nil && !failing && ctx.Err() == nil {
			log.ErrorContext(ctx, "events not numbered; retrying", "cause", err)
		}
		failing = err != nil
	}
}

func numberBacklogs(ctx context.Context, events Events) error {
	for ctx.Err() == nil {
		behind, err := events.WorkspacesBehind(ctx, maxBehind)
		if err != nil || len(behind) == 0 {
			return err
		}
		var failures []error
		for _, workspaceID := range behind {
			began := time.Now()
			if _, err := events.NumberEvents(ctx, workspaceID); err != nil {
				failures = append(failures, err)
			}
			pause(ctx, restPerStep*time.Since(began))
		}
		if len(failures) > 0 {
			return errors.Join(failures...)
		}
	}
	return nil
}
