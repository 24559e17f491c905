package grant

import (
	"context"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

// RefreshTerms are what a refresh says about its refresh token.
type RefreshTerms struct {
	Resource string
	Scope    perm.Set // what the access token is to have; empty for all of the grant's permissions
}

// Rotate exchanges a refresh token for the next one (G2, G3). It checks for a replay before anything else. A repeated
// request gets the same token again (G11).
func (s *Service) Rotate(
	ctx context.Context,
	snapshot Snapshot,
	old Token,
	clientID uuid.UUID,
	terms RefreshTerms,
	sender Sender,
) (Issued, error) {
	g := snapshot.Grant
	if g == nil || g.ClientID != clientID || !g.Kind.Traits().Refreshes || g.State == Pending {
		return Issued{}, refuse(unknownToken)
	}
	if g.State == Revoked {
		return Issued{}, refuse(g.words())
	}
	old.WorkspaceID = g.WorkspaceID
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limit)
	defer cancel()
	if old.Generation < g.Generation && snapshot.Now.Before(g.Ends) {
		return s.rotateSuperseded(ctx, snapshot, old, terms, sender)
	}
	if err := snapshot.standingRefusal(); err != nil {
		return Issued{}, err
	}
	if len(terms.Scope.Without(g.Permissions)) > 0 {
		return Issued{}, &Refusal{Scope: true, Message: widerScope}
	}
	next := s.tokens.successorsOf(old, sender.Proof)
	step := newStep(old, next[0])
	result, err := s.rotate(ctx, *g, step, old, terms.Resource, next)
	if err != nil {
		return Issued{}, err
	}
	if place, again := result.again(len(next)); again {
		return s.repeat(ctx, snapshot, step.to(next[place]), next[place], sender, s.store.Advance)
	}
	ending := sender.ending(snapshot, old)
	if err := s.answerRotation(ctx, *g, result, ending); err != nil {
		return Issued{}, err
	}
	outcome, err := s.commit(ctx, step, snapshot, sender, s.store.Advance)
	if err != nil {
		return Issued{}, err
	}
	if outcome == Refused { // Postgres has a later generation than Redis: this token was superseded
		return Issued{}, s.endRefused(ctx, *g, step, Replayed, ending)
	}
	return snapshot.issue(next[0]), nil
}

// rotateSuperseded handles a refresh token whose successor Postgres holds. Either this request repeats an earlier one,
// or the earlier one was undone, or this request is a replay.
func (s *Service) rotateSuperseded(
	ctx context.Context,
	snapshot Snapshot,
	old Token,
	terms RefreshTerms,
	sender Sender,
) (Issued, error) {
	g := snapshot.Grant
	why, err := s.whySuperseded(ctx, snapshot, supersededRequest{old, sender, g.Resource == terms.Resource})
	switch {
	case err != nil:
		return Issued{}, err
	case why.repeats:
		return s.repeat(ctx, snapshot, why.step, why.next, sender, s.store.Advance)
	case why.undone:
		return s.Rotate(ctx, why.now, old, g.ClientID, terms, sender)
	}
	return Issued{}, s.end(ctx, *g, Replayed, sender.ending(snapshot, old))
}

// rotate calls Redis, and restores the grant there from Postgres, once, if Redis has lost it.
func (s *Service) rotate(
	ctx context.Context,
	g Grant,
	step Step,
	old Token,
	resource string,
	next successors,
) (ScriptResult, error) {
	rotate := func(ctx context.Context) (ScriptResult, error) {
		return s.rotations.Rotate(ctx, step.try(g), old, g.ClientID, resource, next.hashes())
	}
	result, err := s.decide(ctx, step, rotate)
	if err != nil || (result != Missing && result != Ahead) {
		return result, err
	}
	if err := s.repair(ctx, g); err != nil {
		return "", err
	}
	return s.decide(ctx, step, rotate)
}

func (s *Service) repair(ctx context.Context, g Grant) error {
	ctx, cancel := context.WithTimeout(ctx, s.redisTime)
	defer cancel()
	return s.rotations.Repair(ctx, g)
}

func (s *Service) answerRotation(ctx context.Context, g Grant, result ScriptResult, ending *Ending) error {
	if reason, gone := result.revokedReason(); gone {
		return s.end(ctx, g, reason, nil)
	}
	switch result {
	case OK:
		return nil
	case Replay:
		return s.end(ctx, g, Replayed, ending)
	case WrongResource:
		return &Refusal{Target: true, Message: wrongTarget}
	case Ended:
		return refuse(over)
	}
	return refuse(unknownToken)
}
