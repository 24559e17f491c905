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
	// askTime bounds one decision of Redis, retries included: a client is answered 503 within 300 ms.
	askTime  = 175 * time.Millisecond
	askPause = 10 * time.Millisecond
)

// ask asks Redis until it answers or askTime is over, with the same nonce each time (G8). uncertain says, beside an
// error, that the Register may have decided. It is asked again until the end then: only after that can no call of this
// decision arrive in time.
func (k *Service) ask(
	ctx context.Context, id uuid.UUID, try func(context.Context) (ScriptResult, error),
) (word ScriptResult, uncertain bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	for tries := 1; ; tries++ {
		word, failed := try(ctx)
		if failed == nil && word == Late { // the estimate of Redis's clock was wrong, and is right now
			failed = fmt.Errorf("%w: %w: Redis got a call too late", ErrNotCommitted, store.ErrUnavailable)
		}
		if failed == nil {
			if err != nil {
				k.log.WarnContext(ctx, "Redis script retried", "grant_id", id, "tries", tries, "error", err)
			}
			return word, false, nil
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

// decide asks Redis for a decision. One that gets no answer is given up: the client is told 503, and its credential is
// to work afterwards (G10).
func (k *Service) decide(
	ctx context.Context,
	step Step,
	try func(context.Context) (ScriptResult, error),
) (ScriptResult, error) {
	word, uncertain, err := k.ask(ctx, step.GrantID, try)
	if uncertain {
		k.undos.add(ctx, step)
	}
	return word, err
}

const (
	commitTries  = 4
	commitPause  = 50 * time.Millisecond
	commitWithin = time.Second // after which no other try begins
	undoTries    = 4
)

// commit repeats an idempotent update of Postgres until its outcome is known. A step that was not committed, or of
// which that is not known, is taken back, so that the caller's credential works again after the 503.
func (k *Service) commit(
	ctx context.Context,
	step Step,
	facts Snapshot,
	update func() (UpdateResult, error),
) (UpdateResult, error) {
	fence, uncertain, err := k.update(update)
	if err == nil && fence == Refused {
		fence, uncertain, err = k.commitAfterUndo(ctx, step, facts, update)
	}
	if err != nil && (!k.undoRotation(ctx, step) || uncertain) {
		k.undos.add(ctx, step)
	}
	return fence, err
}

// commitAfterUndo repeats an update that Postgres has refused, if what it held in its place was given up by another
// process: that process has reverted it meanwhile, or it is reverted here.
func (k *Service) commitAfterUndo(
	ctx context.Context,
	step Step,
	facts Snapshot,
	update func() (UpdateResult, error),
) (UpdateResult, bool, error) {
	now, err := k.store.Facts(ctx, facts.Grant.ClientID, step.GrantID)
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

// startsAt reports whether Postgres has the grant as it was when the step was decided.
func (s Step) startsAt(g *Grant) bool {
	if s.Generation == 1 {
		return g != nil && g.State == Pending
	}
	return g != nil && g.State == Active && g.Generation == s.Generation-1 && bytes.Equal(g.RefreshHash, s.Former)
}

func (k *Service) update(update func() (UpdateResult, error)) (fence UpdateResult, uncertain bool, err error) {
	began := time.Now()
	for try := range commitTries {
		if fence, err = update(); err == nil {
			return fence, false, nil
		}
		uncertain = uncertain || !errors.Is(err, ErrNotCommitted)
		if time.Since(began) > commitWithin {
			break
		}
		time.Sleep(commitPause << try)
	}
	return Refused, uncertain, err
}

// undoRotation undoes a step in Redis, where other processes find that its token was given to no client.
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

// undoneElsewhere reverts the last step of a grant in Postgres if Redis has undone it, and reads the facts again. Then
// the step was given up by another process, which could not tell Postgres yet, and what looks like the reuse of a code
// or of a superseded token is the retry of a client that was answered 503 (G10). generation and former are those before
// the step. Only Redis can tell the two apart: err is store.ErrUnavailable if it does not answer. A token that is two
// generations old is a replay by Postgres alone.
func (k *Service) undoneElsewhere(
	ctx context.Context,
	facts Snapshot,
	generation uint32,
	former []byte,
) (again Snapshot, back bool, err error) {
	g := facts.Grant
	if g == nil || g.State != Active || g.Generation != generation+1 {
		return Snapshot{}, false, nil
	}
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if undone, err := k.rotations.Undone(asking, g.ID, g.RefreshHash); err != nil || !undone {
		return Snapshot{}, false, err
	}
	step := Step{GrantID: g.ID, Nonce: uuid.NewString(), Generation: g.Generation, Hash: g.RefreshHash, Former: former}
	if err := k.store.GiveUp(ctx, step); err != nil {
		return Snapshot{}, false, err
	}
	again, err = k.store.Facts(ctx, g.ClientID, g.ID)
	return again, err == nil, err
}
