package grant

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/store"
)

const (
	// redisTime is the default limit of one decision of Redis, retries included: the client gets a 503 within 300 ms.
	redisTime  = 175 * time.Millisecond
	redisPause = 10 * time.Millisecond
)

// callRedis calls Redis until it responds or k.redisTime is over, with the same nonce each time (G8). uncertain reports
// that a call got no response and may have decided, or may still decide. If no call gets a response, callRedis retries
// until k.redisTime is over, because only then can no call of this decision arrive in time.
func (s *Service) callRedis(
	ctx context.Context, id uuid.UUID, try func(context.Context) (ScriptResult, error),
) (result ScriptResult, uncertain bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.redisTime)
	defer cancel()
	for tries := 1; ; tries++ {
		result, failed := try(ctx)
		if failed == nil && result == Late { // the estimate of Redis's clock was wrong, and is now corrected
			failed = fmt.Errorf("%w: %w: Redis received the call too late", ErrNotCommitted, store.ErrUnavailable)
		}
		if failed == nil {
			if err != nil {
				s.log.WarnContext(ctx, "Redis script retried", "grant_id", id, "tries", tries, "error", err)
			}
			return result, uncertain, nil
		}
		err, uncertain = failed, uncertain || !errors.Is(failed, ErrNotCommitted)
		if !uncertain && tries > 1 {
			return "", false, err
		}
		select {
		case <-ctx.Done():
			return "", uncertain, err
		case <-time.After(redisPause):
		}
	}
}

// decide calls Redis for a decision. A decision without a response is given up: the client gets a 503, and its
// credential must work afterwards (G10).
func (s *Service) decide(
	ctx context.Context,
	step Step,
	try func(context.Context) (ScriptResult, error),
) (ScriptResult, error) {
	result, uncertain, err := s.callRedis(ctx, step.GrantID, try)
	if err != nil && uncertain {
		s.undos.add(ctx, step)
	}
	return result, err
}

const (
	commitTries  = 4
	commitPause  = 50 * time.Millisecond
	commitWithin = time.Second // no further attempt starts after this time

	undoWithin = 3 * time.Second // no further call that undoes a decision in Redis starts after this time
	undoPause  = 25 * time.Millisecond
	undoTime   = 75 * time.Millisecond // the default limit of one such call
)

// takeStep is the idempotent update of Postgres for a step: Activate or Advance.
type takeStep func(context.Context, Step) (UpdateResult, error)

// commit repeats an idempotent update of Postgres until its outcome is known. A step that was not, or possibly not,
// committed is undone, so that the client's credential works again after the 503. A step is also undone if its signing
// key cannot be loaded.
func (s *Service) commit(
	ctx context.Context,
	step Step,
	snapshot Snapshot,
	sender Sender,
	take takeStep,
) (outcome UpdateResult, err error) {
	uncertain := false
	if err = sender.loadKey(ctx, snapshot); err == nil {
		outcome, uncertain, err = s.update(ctx, step, take)
	}
	if err == nil && outcome == Refused {
		outcome, uncertain, err = s.commitAfterUndo(ctx, step, snapshot, take)
	}
	if err != nil && s.undoRotation(ctx, step) && uncertain {
		s.undos.add(ctx, step)
	}
	return outcome, err
}

// commitAfterUndo repeats an update that Postgres has refused, if the conflicting step was given up by another process.
// Either that process has reverted the step meanwhile, or whySuperseded reverts it here.
func (s *Service) commitAfterUndo(
	ctx context.Context,
	step Step,
	snapshot Snapshot,
	take takeStep,
) (UpdateResult, bool, error) {
	now, err := s.store.Snapshot(ctx, snapshot.Grant.ClientID, step.Key())
	if err != nil {
		return Refused, false, err
	}
	if !step.startsAt(now.Grant) {
		why, err := s.whySuperseded(ctx, now, supersededRequest{token: step.presented()})
		if !why.undone || err != nil {
			return Refused, false, err
		}
	}
	return s.update(ctx, step, take)
}

// startsAt reports whether Postgres holds the grant as it was when the step was decided.
func (s Step) startsAt(g *Grant) bool {
	if s.Generation == 1 {
		return g != nil && g.State == Pending
	}
	return g != nil && g.State == Active && g.Generation == s.Generation-1 && bytes.Equal(g.RefreshHash, s.Former)
}

// update repeats an update until its outcome is known, Postgres stops responding, or commitWithin is over. uncertain
// reports, with an error or Refused, that an earlier try may be committed.
func (s *Service) update(
	ctx context.Context,
	step Step,
	take takeStep,
) (outcome UpdateResult, uncertain bool, err error) {
	began := time.Now()
	for try := range commitTries {
		if outcome, err = take(ctx, step); err == nil {
			return outcome, uncertain && outcome == Refused, nil
		}
		uncertain = uncertain || !errors.Is(err, ErrNotCommitted)
		if time.Since(began) > commitWithin || !s.store.Responds() {
			break
		}
		time.Sleep(commitPause << try)
	}
	return Refused, uncertain, err
}

// undoRotation undoes a step in Redis, where other processes can see that this try gave it to no client.
func (s *Service) undoRotation(ctx context.Context, step Step) bool {
	return s.undo(ctx, step, func(ctx context.Context) error {
		return s.rotations.Undo(ctx, step.GrantID, step.Nonce)
	})
}

// errOvertaken means that a slow request was decided in time, but a repetition of it has used the decision since. That
// is no replay: the presented credential was current.
var errOvertaken = fmt.Errorf("%w: a later request has used the decision", store.ErrUnavailable)

// undoRefused undoes a step that Postgres has refused. overtaken reports that a later request has used its decision.
func (s *Service) undoRefused(ctx context.Context, step Step, former string) (undone, overtaken bool) {
	undone = s.undo(ctx, step, func(ctx context.Context) (err error) {
		overtaken, err = s.rotations.UndoRefused(ctx, step.GrantID, step.Nonce, former)
		return err
	})
	return undone, overtaken
}

// endRefused ends a grant because Postgres has refused a step that Redis decided: the presented credential was used
// before, and Redis has lost that. If there is a later decision, Redis has lost nothing, and endRefused returns
// errOvertaken.
func (s *Service) endRefused(ctx context.Context, g Grant, step Step, reason Reason, ending *Ending) error {
	undone, overtaken := s.undoRefused(ctx, step, "")
	if overtaken {
		return errOvertaken
	}
	if !undone {
		return fmt.Errorf("%w: redis did not respond", store.ErrUnavailable)
	}
	return s.end(ctx, g, reason, ending)
}

// undo undoes a step by a call of Redis, and reports whether that succeeded. If Redis does not respond, undo adds the
// step to k.undos, and repeats the call until it succeeds, Postgres has the undo, or undoWithin is over. A request
// waits so long because a client that tries again meanwhile, at another process, would be taken for a replay.
func (s *Service) undo(ctx context.Context, step Step, call func(context.Context) error) bool {
	once := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.undoTime) // ctx may have ended
		defer cancel()
		return call(ctx)
	}
	began := time.Now()
	undone := once() == nil
	if !undone {
		s.undos.add(ctx, step)
	}
	for !undone && s.undos.has(step.GrantID) && time.Since(began) < undoWithin {
		time.Sleep(undoPause)
		undone = once() == nil
	}
	return undone
}
