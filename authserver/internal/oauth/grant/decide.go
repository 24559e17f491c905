package grant

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

const (
	// redisTime is the default limit of one decision of Redis, retries included: the client gets a 503 within 300 ms.
	redisTime  = 175 * time.Millisecond
	redisPause = 10 * time.Millisecond
)

// callRedis calls Redis until it responds or s.redisTime is over, with the same nonce each time (G8). uncertain reports
// that a call got no response and may have decided, or may still decide. If no call gets a response, callRedis retries
// until s.redisTime is over, because only then can no call of this decision arrive in time.
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
	ctx context.Context, step Step, try func(context.Context) (ScriptResult, error),
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

// commit repeats an idempotent update of Postgres until its outcome is known. A step that was not, or possibly not,
// committed is undone, so that the client's credential works again after the 503. A step is also undone if its signing
// key cannot be loaded.
func (s *Service) commit(
	ctx context.Context, step Step, snapshot Snapshot, r Request,
) (outcome UpdateResult, err error) {
	uncertain := false
	if err = r.LoadKey(ctx, snapshot.KeyIDs); err == nil {
		outcome, uncertain, err = s.update(func() (UpdateResult, error) { return s.store.Advance(ctx, step) })
	}
	if err == nil && outcome == Refused {
		outcome, uncertain, err = s.commitAfterUndo(ctx, step, r)
	}
	if err != nil {
		_ = s.undo(ctx, step, Undo{}, uncertain) // the request gets err in any case
	}
	return outcome, err
}

// commitAfterUndo repeats an update that Postgres has refused, if the conflicting step was given up by another process.
// Either that process has reverted the step meanwhile, or whySuperseded reverts it here.
func (s *Service) commitAfterUndo(ctx context.Context, step Step, r Request) (UpdateResult, bool, error) {
	now, err := s.store.Snapshot(ctx, r.Terms.ClientID, step.Key(), nil)
	if err != nil {
		return Refused, false, err
	}
	g := now.Grant
	unchanged := g != nil && g.State == Active && g.Generation == r.Token.Generation &&
		bytes.Equal(g.RefreshHash, step.Former)
	if r.IsCode() {
		unchanged = g != nil && g.State == Pending
	}
	if !unchanged {
		why, err := s.whySuperseded(ctx, now, r, false)
		if !why.undone || err != nil {
			return Refused, false, err
		}
	}
	return s.update(func() (UpdateResult, error) { return s.store.Advance(ctx, step) })
}

// update repeats an update until its outcome is known, Postgres stops responding, or commitWithin is over. uncertain
// reports, with an error or Refused, that an earlier try may be committed.
func (s *Service) update(take func() (UpdateResult, error)) (outcome UpdateResult, uncertain bool, err error) {
	began := time.Now()
	for try := range commitTries {
		if outcome, err = take(); err == nil {
			return outcome, uncertain && outcome == Refused, nil
		}
		uncertain = uncertain || !errors.Is(err, ErrNotCommitted)
		if time.Since(began) > commitWithin || !s.store.Responds() {
			break
		}
		time.Sleep(s.commitPause << try)
	}
	return Refused, uncertain, err
}

// errOvertaken means that a slow request was decided in time, but a repetition of it has used the decision since. That
// is no replay: the presented credential was current.
var errOvertaken = fmt.Errorf("%w: a later request has used the decision", store.ErrUnavailable)

// undo undoes a step in Redis, so that other processes can see that no client got its result. If Redis does not
// respond, undo adds the step to s.undos, and repeats the call until it succeeds, Postgres has the undo, or undoWithin
// is over. A request waits so long because a client that tries again meanwhile, at another process, would be taken for
// a replay. uncertain reports that Postgres may have committed the step, or has; then it is undone there too.
//
// undo returns nil if the step was refused by Postgres and is undone. It returns errOvertaken if a later request has
// used the decision of such a step, and otherwise store.ErrUnavailable.
func (s *Service) undo(ctx context.Context, step Step, how Undo, uncertain bool) error {
	overtaken := false
	once := func() bool {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.undoTime) // ctx may have ended
		defer cancel()
		later, err := s.rotations.Undo(ctx, step.GrantID, step.Nonce, how)
		overtaken = later
		return err == nil
	}
	began := time.Now()
	undone := once()
	if !undone {
		s.undos.add(ctx, step)
	}
	for !undone && s.undos.has(step.GrantID) && time.Since(began) < undoWithin {
		time.Sleep(undoPause)
		undone = once()
	}
	if undone && uncertain {
		s.undos.add(ctx, step)
	}
	switch {
	case overtaken:
		return errOvertaken
	case uncertain || !undone:
		return fmt.Errorf("%w: a change of the grant is being undone", store.ErrUnavailable)
	}
	return nil
}

// An undoQueue undoes the steps of tries that got a 503 although a store may have committed them (G10). It reverts them
// in Postgres at once, or in the background until Postgres responds. Until then requests for the grant get a 503, and
// neither store decides about it.
type undoQueue struct {
	store GrantStore
	log   *slog.Logger

	cancelTime time.Duration // limit for Postgres while a client waits
	waitTime   time.Duration // how long other requests for the grant wait

	mu     sync.Mutex
	grants map[uuid.UUID]*pendingUndo
}

// A pendingUndo holds the steps of one grant to undo.
type pendingUndo struct {
	steps []Step
	done  chan struct{}
}

const (
	cancelTime  = 75 * time.Millisecond // default of undoQueue.cancelTime
	waitTime    = 25 * time.Millisecond // default of undoQueue.waitTime
	cancelPause = 50 * time.Millisecond
)

// wait waits until no step of the grant is left to undo, for up to u.waitTime. Its error is store.ErrUnavailable.
func (u *undoQueue) wait(ctx context.Context, id uuid.UUID) error {
	u.mu.Lock()
	pending := u.grants[id]
	u.mu.Unlock()
	if pending == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, u.waitTime)
	defer cancel()
	select {
	case <-pending.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: a change of the grant is being undone", store.ErrUnavailable)
	}
}

// has reports whether a step of the grant is left to undo.
func (u *undoQueue) has(id uuid.UUID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.grants[id] != nil
}

// add undoes a step.
func (u *undoQueue) add(ctx context.Context, step Step) {
	u.mu.Lock()
	pending := u.grants[step.GrantID]
	first := pending == nil
	if first {
		pending = &pendingUndo{done: make(chan struct{})}
		u.grants[step.GrantID] = pending
	}
	pending.steps = append(pending.steps, step)
	u.mu.Unlock()
	if !first {
		return // another call undoes it with the earlier steps
	}
	ctx = context.WithoutCancel(ctx)
	if u.undoAll(ctx, pending, u.cancelTime) {
		return
	}
	u.log.WarnContext(ctx, "grant change not undone yet; requests for the grant return 503", "grant_id", step.GrantID)
	go func() {
		for !u.undoAll(ctx, pending, time.Second) {
			time.Sleep(cancelPause)
		}
	}()
}

// undoAll reverts steps in Postgres, and reports whether all steps of the grant are undone.
func (u *undoQueue) undoAll(ctx context.Context, pending *pendingUndo, within time.Duration) bool {
	for finished := false; !finished; {
		u.mu.Lock()
		step := pending.steps[0]
		u.mu.Unlock()
		reverting, cancel := context.WithTimeout(ctx, within)
		err := u.store.CancelTries(reverting, step, []string{step.Nonce})
		cancel()
		if err != nil {
			return false
		}
		u.mu.Lock()
		pending.steps = pending.steps[1:]
		if finished = len(pending.steps) == 0; finished {
			delete(u.grants, step.GrantID)
			close(pending.done)
		}
		u.mu.Unlock()
	}
	return true
}

// A supersededBy is the reason why Postgres holds a later step than the presented credential. The zero value means that
// another request used the credential.
type supersededBy struct {
	repeats bool // this request repeats the one that got the successor (G11)
	step    Step
	refresh credential.Secret

	undone bool // no client has the successor, and the step was reverted (G10)
	now    Snapshot
}

// whySuperseded returns why Postgres holds the step after the presented credential. Only Redis knows whether the
// request repeats an earlier one within 60 s, and whether another process gave the step up but has not yet reverted it
// in Postgres. In that case, this request is the retry of a client that got a 503. The error is store.ErrUnavailable if
// Redis does not respond. Redis is not needed for a credential two steps old: Postgres proves that it was used.
// matches reports whether the other parameters of r are those of the request that got the successor.
func (s *Service) whySuperseded(
	ctx context.Context, snapshot Snapshot, r Request, matches bool,
) (supersededBy, error) {
	g := snapshot.Grant
	if g == nil || g.State != Active || g.Generation != r.Token.Generation+1 {
		return supersededBy{}, nil
	}
	var hash []byte
	var refresh credential.Secret
	derived := matches && r.Sender.Proof != Proof{}
	if derived {
		next := s.Tokens.successorsOf(r.Token, r.Sender.Proof)
		place := slices.IndexFunc(next.hashes, func(one []byte) bool { return bytes.Equal(one, g.RefreshHash) })
		if derived = place >= 0; derived {
			hash, refresh = next.hashes[place], next.secrets[place]
		}
	}
	step := r.step(hash)
	step.GivenUp = g.GivenUp
	refusal := snapshot.standingRefusal()
	ask := func(ctx context.Context) (ScriptResult, error) { return s.rotations.Superseded(ctx, step, *g) }
	var result ScriptResult
	var err error
	if derived && refusal == nil {
		result, err = s.decide(ctx, step, ask)
	} else { // this try does not take part in the last decision
		step.Nonce = ""
		result, _, err = s.callRedis(ctx, g.ID, ask)
	}
	switch {
	case err != nil:
		return supersededBy{}, err
	case result == Again && refusal != nil:
		return supersededBy{}, refusal
	case result == Again:
		return supersededBy{repeats: true, step: step, refresh: refresh}, nil
	case result != Undone:
		return supersededBy{}, nil
	}
	step.Hash = g.RefreshHash
	if err := s.store.CancelTries(ctx, step, g.TakenBy); err != nil {
		return supersededBy{}, err
	}
	now, err := s.store.Snapshot(ctx, g.ClientID, g.Key(), nil)
	return supersededBy{undone: err == nil, now: now}, err
}
