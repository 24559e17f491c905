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
	// askTime limits one decision of Redis, retries included: the client gets a 503 within 300 ms.
	askTime  = 175 * time.Millisecond
	askPause = 10 * time.Millisecond
)

// ask calls Redis until it responds or askTime is over, with the same nonce each time (G8). uncertain reports, with an
// error, that Redis may have decided. In that case ask retries until askTime is over, because only then can no call of
// this decision arrive in time.
func (k *Service) ask(
	ctx context.Context, id uuid.UUID, try func(context.Context) (ScriptResult, error),
) (result ScriptResult, uncertain bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	for tries := 1; ; tries++ {
		result, failed := try(ctx)
		if failed == nil && result == Late { // the estimate of Redis's clock was wrong, and is now corrected
			failed = fmt.Errorf("%w: %w: Redis received the call too late", ErrNotCommitted, store.ErrUnavailable)
		}
		if failed == nil {
			if err != nil {
				k.log.WarnContext(ctx, "Redis script retried", "grant_id", id, "tries", tries, "error", err)
			}
			return result, false, nil
		}
		err, uncertain = failed, uncertain || !errors.Is(failed, ErrNotCommitted)
		if !uncertain && tries > 1 {
			return "", false, err
		}
		select {
		case <-ctx.Done():
			return "", uncertain, err
		case <-time.After(askPause):
		}
	}
}

// decide calls Redis for a decision. A decision without a response is given up: the client gets a 503, and its
// credential must work afterwards (G10).
func (k *Service) decide(
	ctx context.Context,
	step Step,
	try func(context.Context) (ScriptResult, error),
) (ScriptResult, error) {
	result, uncertain, err := k.ask(ctx, step.GrantID, try)
	if uncertain {
		k.undos.add(ctx, step)
	}
	return result, err
}

const (
	commitTries  = 4
	commitPause  = 50 * time.Millisecond
	commitWithin = time.Second // no further attempt starts after this time
	undoTries    = 4
)

// commit repeats an idempotent update of Postgres until its outcome is known. A step that was not, or possibly not,
// committed is undone, so that the client's credential works again after the 503.
func (k *Service) commit(
	ctx context.Context,
	step Step,
	snapshot Snapshot,
	update func() (UpdateResult, error),
) (UpdateResult, error) {
	outcome, uncertain, err := k.update(update)
	if err == nil && outcome == Refused {
		outcome, uncertain, err = k.commitAfterUndo(ctx, step, snapshot, update)
	}
	if err != nil && (!k.undoRotation(ctx, step) || uncertain) {
		k.undos.add(ctx, step)
	}
	return outcome, err
}

// commitAfterUndo repeats an update that Postgres has refused, if the conflicting step was given up by another process.
// Either that process has reverted the step meanwhile, or undoneElsewhere reverts it here.
func (k *Service) commitAfterUndo(
	ctx context.Context,
	step Step,
	snapshot Snapshot,
	update func() (UpdateResult, error),
) (UpdateResult, bool, error) {
	now, err := k.store.Facts(ctx, snapshot.Grant.ClientID, step.GrantID)
	if err != nil {
		return Refused, false, err
	}
	if !step.startsAt(now.Grant) {
		_, back, err := k.undoneElsewhere(ctx, now, step.Generation-1, step.Former)
		if !back || err != nil {
			return Refused, false, err
		}
	}
	return k.update(update)
}

// startsAt reports whether Postgres holds the grant as it was when the step was decided.
func (s Step) startsAt(g *Grant) bool {
	if s.Generation == 1 {
		return g != nil && g.State == Pending
	}
	return g != nil && g.State == Active && g.Generation == s.Generation-1 && bytes.Equal(g.RefreshHash, s.Former)
}

func (k *Service) update(update func() (UpdateResult, error)) (outcome UpdateResult, uncertain bool, err error) {
	began := time.Now()
	for try := range commitTries {
		if outcome, err = update(); err == nil {
			return outcome, false, nil
		}
		uncertain = uncertain || !errors.Is(err, ErrNotCommitted)
		if time.Since(began) > commitWithin {
			break
		}
		time.Sleep(commitPause << try)
	}
	return Refused, uncertain, err
}

// undoRotation undoes a step in Redis, where other processes can see that no client received its token.
func (k *Service) undoRotation(ctx context.Context, step Step) bool {
	for range undoTries {
		if k.undo(ctx, step) == nil {
			return true
		}
	}
	return false
}

func (k *Service) undo(ctx context.Context, step Step) error {
	ctx, cancel := context.WithTimeout(ctx, giveUpTime)
	defer cancel()
	return k.rotations.Undo(ctx, step.GrantID, step.Nonce)
}

// undoneElsewhere reverts the last step of a grant in Postgres if Redis has undone it, and reads the grant again. In
// that case another process gave the step up but could not revert it in Postgres yet, and the apparent reuse of a code
// or of a superseded token is the retry of a client that got a 503 (G10). generation and former are those before the
// step. Only Redis can distinguish the two cases: err is store.ErrUnavailable if it does not respond. Postgres alone
// proves that a token two generations old is a replay.
func (k *Service) undoneElsewhere(
	ctx context.Context,
	snapshot Snapshot,
	generation uint32,
	former []byte,
) (again Snapshot, back bool, err error) {
	g := snapshot.Grant
	if g == nil || g.State != Active || g.Generation != generation+1 {
		return Snapshot{}, false, nil
	}
	askCtx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if undone, err := k.rotations.Undone(askCtx, g.ID, g.RefreshHash); err != nil || !undone {
		return Snapshot{}, false, err
	}
	step := Step{GrantID: g.ID, Nonce: uuid.NewString(), Generation: g.Generation, Hash: g.RefreshHash, Former: former}
	if err := k.store.GiveUp(ctx, step); err != nil {
		return Snapshot{}, false, err
	}
	again, err = k.store.Facts(ctx, g.ClientID, g.ID)
	return again, err == nil, err
}
