package grant

import (
	"bytes"
	"context"
	"time"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// Issued is the result of a redemption or a rotation.
type Issued struct {
	Grant    Grant
	Now      time.Time         // Postgres's clock, for the token's times
	Refresh  credential.Secret // empty for confidential grants (G5)
	Repeated bool              // the refresh token was given before, to an earlier request of the same sender (G11)
}

// issue returns the result of a step for the client.
func (s Snapshot) issue(next successor) Issued {
	issued := Issued{Grant: *s.Grant, Now: s.Now}
	if s.Grant.Kind.Traits().Refreshes {
		issued.Refresh = next.secret
	}
	return issued
}

// Redeem exchanges a code once (G1). A repeated request gets the same refresh token again (G11).
func (s *Service) Redeem(
	ctx context.Context,
	snapshot Snapshot,
	code Token,
	terms CodeTerms,
	sender Sender,
) (Issued, error) {
	g := snapshot.Grant
	if g == nil || g.ClientID != terms.ClientID {
		return Issued{}, refuse(unknownCode)
	}
	code.WorkspaceID = g.WorkspaceID
	switch g.State {
	case Revoked:
		return Issued{}, refuse(g.words())
	case Active:
		return s.redeemedBefore(ctx, snapshot, code, terms, sender)
	}
	if err := snapshot.standingRefusal(); err != nil {
		return Issued{}, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limit)
	defer cancel()
	next := s.tokens.successorsOf(code, sender.Proof)
	step := newStep(code, next[0])
	result, err := s.decide(ctx, step, func(ctx context.Context) (ScriptResult, error) {
		return s.rotations.Exchange(ctx, step.try(*g), code.Hash, terms, next.hashes())
	})
	if err != nil {
		return Issued{}, err
	}
	if place, again := result.again(len(next)); again {
		return s.repeat(ctx, snapshot, step.to(next[place]), next[place], sender, s.activates(code, terms))
	}
	if result == CodeSpent {
		return s.redeemedMeanwhile(ctx, *g, code, terms, sender)
	}
	ending := sender.ending(snapshot, code)
	if err := s.answerExchange(ctx, *g, result, terms, ending); err != nil {
		return Issued{}, err
	}
	outcome, err := s.commit(ctx, step, snapshot, sender, s.activates(code, terms))
	if err != nil {
		return Issued{}, err
	}
	if outcome == Refused { // Redis has lost the redemption of the code
		return Issued{}, s.endRefused(ctx, *g, step, CodeReused, ending)
	}
	return snapshot.issue(next[0]), nil
}

// activates returns the update of Postgres for a redeemed code.
func (s *Service) activates(code Token, terms CodeTerms) takeStep {
	binding := Binding(code.Hash, terms.RedirectURI, terms.Challenge)
	return func(ctx context.Context, step Step) (UpdateResult, error) {
		return s.store.Activate(ctx, step, binding)
	}
}

// redeemedBefore handles a code whose grant is active. Either this request repeats an earlier one, or the earlier one
// was undone, or the code is reused. Only Postgres proves the reuse (G1).
func (s *Service) redeemedBefore(
	ctx context.Context,
	snapshot Snapshot,
	code Token,
	terms CodeTerms,
	sender Sender,
) (Issued, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limit)
	defer cancel()
	g := snapshot.Grant
	bound := bytes.Equal(g.CodeBinding, Binding(code.Hash, terms.RedirectURI, terms.Challenge))
	p := supersededRequest{token: code, sender: sender, matches: bound && g.Resource == terms.Resource}
	why, err := s.whySuperseded(ctx, snapshot, p)
	if err != nil {
		return Issued{}, err
	}
	switch {
	case why.repeats:
		return s.repeat(ctx, snapshot, why.step, why.next, sender, s.activates(code, terms))
	case why.undone:
		return s.Redeem(ctx, why.now, code, terms, sender)
	case g.Resource != terms.Resource:
		return Issued{}, &Refusal{Target: true, Message: wrongTarget}
	case !bound:
		return Issued{}, refuse("The authorization code was already used.")
	}
	return Issued{}, s.end(ctx, *g, CodeReused, sender.ending(snapshot, code))
}

// redeemedMeanwhile handles a code that was unused in Postgres at first and then used in Redis.
func (s *Service) redeemedMeanwhile(
	ctx context.Context,
	g Grant,
	code Token,
	terms CodeTerms,
	sender Sender,
) (Issued, error) {
	snapshot, err := s.store.Snapshot(ctx, terms.ClientID, g.Key())
	switch now := snapshot.Grant; {
	case err != nil:
		return Issued{}, err
	case now != nil && now.State == Revoked:
		return Issued{}, refuse(now.words())
	case now != nil && now.State == Active:
		return s.redeemedBefore(ctx, snapshot, code, terms, sender)
	}
	return Issued{}, refuse(unknownCode)
}

func (s *Service) answerExchange(
	ctx context.Context,
	g Grant,
	result ScriptResult,
	terms CodeTerms,
	ending *Ending,
) error {
	if reason, gone := result.revokedReason(); gone {
		return s.end(ctx, g, reason, nil)
	}
	switch result {
	case OK:
		return nil
	case Reused:
		return s.end(ctx, g, CodeReused, ending)
	case TooManyTries:
		return s.end(ctx, g, CodeGuessed, nil)
	case WrongResource:
		return &Refusal{Target: true, Message: wrongTarget}
	case WrongRedirectURI:
		return refuse("redirect_uri must exactly match the redirect_uri of the authorization request.")
	case WrongVerifier:
		if terms.Challenge == "" { // a confidential client: contract, section 3
			return &Refusal{
				Missing: true,
				Message: "code_verifier is required, because the authorization request had a code_challenge.",
			}
		}
		return refuse("code_verifier does not match the code_challenge of the authorization request.")
	case Expired, Missing:
		return refuse(
			"The authorization code has expired. It is valid for 60 seconds. Send the user to the consent page again.",
		)
	case Replaced:
		return refuse("The authorization code was replaced by a newer one.")
	case Ended:
		return refuse(over)
	}
	return refuse(unknownCode)
}
