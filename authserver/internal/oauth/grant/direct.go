package grant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/store"
)

// RotateDirectly is Rotate with one script and one statement, without a snapshot. It is only for clients without
// authentication, and only for a token that is current. If anything else is the case, it changes nothing and returns
// false; then Rotate must decide. Its error wraps store.ErrUnavailable.
func (s *Service) RotateDirectly(
	ctx context.Context,
	clientID uuid.UUID,
	old Token,
	terms RefreshTerms,
	sender Sender,
) (Issued, bool, error) {
	old, ready, err := s.locateDirectly(ctx, old)
	if !ready || err != nil {
		return Issued{}, false, err
	}
	next := s.tokens.successorsOf(old, sender.Proof)
	step := newStep(old, next[0])
	snapshot, done, err := s.direct(ctx, step, clientID, sender, directStep{
		decide: func(ctx context.Context) (ScriptResult, error) {
			return s.rotations.Rotate(ctx, step.directTry(), old, clientID, terms.Resource, next.hashes())
		},
		take: func(ctx context.Context, step Step) (Snapshot, UpdateResult, error) {
			return s.store.AdvanceDirectly(ctx, step, clientID, terms)
		},
	})
	if !done || err != nil {
		return Issued{}, false, err
	}
	return snapshot.issue(next[0]), true, nil
}

// RedeemDirectly is Redeem with one script and one statement, without a snapshot. It is only for clients without
// authentication, and only for a code that is unused and matches the terms. If anything else is the case, it changes
// nothing and returns false; then Redeem must decide. Its error wraps store.ErrUnavailable.
func (s *Service) RedeemDirectly(
	ctx context.Context,
	code Token,
	terms CodeTerms,
	sender Sender,
) (Issued, bool, error) {
	code, ready, err := s.locateDirectly(ctx, code)
	if !ready || err != nil {
		return Issued{}, false, err
	}
	next := s.tokens.successorsOf(code, sender.Proof)
	step := newStep(code, next[0])
	binding := Binding(code.Hash, terms.RedirectURI, terms.Challenge)
	snapshot, done, err := s.direct(ctx, step, terms.ClientID, sender, directStep{
		decide: func(ctx context.Context) (ScriptResult, error) {
			return s.rotations.Exchange(ctx, step.directTry(), code.Hash, terms, next.hashes())
		},
		take: func(ctx context.Context, step Step) (Snapshot, UpdateResult, error) {
			return s.store.ActivateDirectly(ctx, step, binding, terms)
		},
	})
	if !done || err != nil {
		return Issued{}, false, err
	}
	return snapshot.issue(next[0]), true, nil
}

// locateDirectly is locate for a direct step. ready reports whether both stores respond and the grant exists. If not,
// the caller takes the step with a snapshot instead: one store may be enough to refuse it.
func (s *Service) locateDirectly(ctx context.Context, token Token) (located Token, ready bool, err error) {
	if !s.store.Responds() || !s.rotations.Responds(ctx, token.GrantID) {
		return token, false, nil
	}
	located, err = s.locate(ctx, token)
	if errors.Is(err, ErrUnknown) {
		return token, false, nil
	}
	return located, err == nil, err
}

// A directStep is one step in both stores.
type directStep struct {
	decide func(context.Context) (ScriptResult, error)
	take   func(context.Context, Step) (Snapshot, UpdateResult, error)
}

// direct takes a step in Redis and then in Postgres. done reports that both have taken it and the signing key is
// loaded. Otherwise it is undone: a refusal must not use up the credential. The caller then reads a snapshot, which
// shows the reason.
func (s *Service) direct(
	ctx context.Context,
	step Step,
	clientID uuid.UUID,
	sender Sender,
	one directStep,
) (snapshot Snapshot, done bool, err error) {
	if err := s.undos.wait(ctx, step.GrantID); err != nil {
		return Snapshot{}, false, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limit)
	defer cancel()
	step.Began = time.Now()
	result, uncertain, err := s.callRedis(ctx, step.GrantID, one.decide)
	former, decided := result.decided()
	decided = decided && err == nil
	if uncertain && !decided { // a call without a response may still arrive, even if a later call got one
		s.undos.add(ctx, step)
	}
	if err != nil && !uncertain {
		return Snapshot{}, false, nil
	}
	if !decided {
		return Snapshot{}, false, err
	}
	take := func(ctx context.Context, step Step) (outcome UpdateResult, err error) {
		snapshot, outcome, err = one.take(ctx, step)
		return outcome, err
	}
	outcome, unknown, err := s.update(ctx, step, take)
	if err == nil && outcome == Overtaken {
		done, err = s.mayReturnOvertaken(ctx, step, clientID)
	} else {
		done = err == nil && outcome == Updated
	}
	if done {
		if err = sender.loadKey(ctx, snapshot); err == nil {
			return snapshot, true, nil
		}
		unknown = true // Postgres has committed it
	}
	undone, overtaken := s.undoDirect(ctx, step, former, err == nil && !uncertain && !unknown)
	if unknown && undone {
		s.undos.add(ctx, step)
	}
	switch {
	case err != nil:
	case unknown || !undone:
		err = fmt.Errorf("%w: a change of the grant is being undone", store.ErrUnavailable)
	case overtaken:
		err = errOvertaken
	}
	return Snapshot{}, false, err
}

// mayReturnOvertaken reports whether a client whose grant was revoked during its request may get the tokens, which are
// already invalid. The statement that found the revocation checked nothing else.
func (s *Service) mayReturnOvertaken(ctx context.Context, step Step, clientID uuid.UUID) (bool, error) {
	now, err := s.store.Snapshot(ctx, clientID, step.Key())
	if err != nil || now.Client == nil || now.Grant == nil {
		return false, err
	}
	return now.Client.AuthMethod == client.AuthNone && now.standingRefusal() == nil, nil
}

// undoDirect undoes a direct step in Redis. refused reports that Postgres has refused the step, and that no call of
// this try can arrive any more. overtaken reports that a later request has used the decision.
func (s *Service) undoDirect(
	ctx context.Context,
	step Step,
	former string,
	refused bool,
) (undone, overtaken bool) {
	if !refused {
		return s.undoRotation(ctx, step), false
	}
	return s.undoRefused(ctx, step, former)
}
