package grant

import (
	"context"
	"crypto/rand"
	"encoding/base64"
)

// A Sender is what a token request says about its sender.
type Sender struct {
	Proof     Proof
	Network   string // shortened; "" if it is unknown
	UserAgent string // shortened
}

// newStep returns the step to the successor of a presented credential.
func newStep(presented Token, next successor) Step {
	return Step{
		GrantID:    presented.GrantID,
		Nonce:      newNonce(),
		Generation: presented.Generation + 1,
		Hash:       next.hash,
		Former:     presented.former(),
	}
}

// newNonce returns a nonce of 16 characters: three and their separators stay below the size at which Redis stores a
// grant less densely (KEYS.md).
func newNonce() string {
	var random [12]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	return base64.RawURLEncoding.EncodeToString(random[:])
}

// to returns the step to another successor of the same credential.
func (s Step) to(next successor) Step {
	s.Hash = next.hash
	return s
}

// former returns what Postgres holds as the hash of the refresh token while the credential is current.
func (t Token) former() []byte {
	if t.Generation == 0 {
		return nil
	}
	return t.Hash
}

// presented returns the credential from which the step starts, as far as the stores know it.
func (s Step) presented() Token {
	return Token{GrantID: s.GrantID, Generation: s.Generation - 1, Hash: s.Former}
}

// A presentation is one presentation of a code or refresh token whose successor Postgres holds.
type presentation struct {
	token   Token
	sender  Sender
	matches bool // the other parameters are those of the request that got the successor
}

// A supersession says why Postgres holds a later step than the presented credential. The zero value means that the
// credential was used before by another request.
type supersession struct {
	repeats bool // this request repeats the one that got the successor (G11)
	step    Step
	next    successor

	undone bool // no client has the successor, and the step was reverted (G10)
	now    Snapshot
}

// whySuperseded asks Redis why Postgres holds the step after the presented credential. Only Redis knows whether the
// request repeats an earlier one in time, and whether another process gave the step up but could not revert it in
// Postgres yet, so that this is the retry of a client that got a 503. Its error is store.ErrUnavailable if Redis does
// not respond. Postgres alone proves that a credential two steps old was used before.
func (k *Service) whySuperseded(ctx context.Context, snapshot Snapshot, p presentation) (supersession, error) {
	g := snapshot.Grant
	if g == nil || g.State != Active || g.Generation != p.token.Generation+1 {
		return supersession{}, nil
	}
	var next successor
	derived := p.matches && p.sender.Proof != Proof{}
	if derived {
		next, derived = k.tokens.successorsOf(p.token, p.sender.Proof).with(g.RefreshHash)
	}
	step := newStep(p.token, next)
	refusal := snapshot.standingRefusal()
	result, err := k.askSuperseded(ctx, *g, step, derived && refusal == nil)
	switch {
	case err != nil:
		return supersession{}, err
	case result == Again && refusal != nil:
		return supersession{}, refusal
	case result == Again:
		return supersession{repeats: true, step: step, next: next}, nil
	case result != Undone:
		return supersession{}, nil
	}
	undone := Step{GrantID: g.ID, Generation: g.Generation, Hash: g.RefreshHash, Former: p.token.former()}
	if err := k.store.GiveUp(ctx, undone, g.TakenBy); err != nil {
		return supersession{}, err
	}
	now, err := k.store.Facts(ctx, g.ClientID, g.ID)
	return supersession{undone: err == nil, now: now}, err
}

// askSuperseded calls Redis. Unless holds is true, the call changes nothing for a try that is not known there.
func (k *Service) askSuperseded(ctx context.Context, g Grant, step Step, holds bool) (ScriptResult, error) {
	try := Try{GrantID: g.ID, GivenUp: g.GivenUp}
	if holds {
		try.Nonce = step.Nonce
	}
	ask := func(ctx context.Context) (ScriptResult, error) { return k.rotations.Superseded(ctx, try, step.Hash, g) }
	if holds {
		return k.decide(ctx, step, ask)
	}
	result, _, err := k.ask(ctx, g.ID, ask)
	return result, err
}

// repeat gives a token again. It commits the step like the first request, which may be under way or may be given up:
// the token stays current as long as one of them has told a client.
func (k *Service) repeat(
	ctx context.Context,
	snapshot Snapshot,
	step Step,
	next successor,
	sender Sender,
	take takeStep,
) (Issued, error) {
	outcome, err := k.commit(ctx, step, snapshot, take)
	if err != nil {
		return Issued{}, err
	}
	if outcome != Updated {
		now, err := k.store.Facts(ctx, snapshot.Grant.ClientID, step.GrantID)
		if err != nil {
			return Issued{}, err
		}
		if err := k.refuseRepeated(ctx, now, step, sender); err != nil {
			return Issued{}, err
		}
	}
	issued := snapshot.issue(next)
	issued.Repeated = true
	return issued, nil
}

// refuseRepeated returns why a token cannot be given again, although Redis has decided that it is. It returns nil if
// its client has used the token since: when this request began, Postgres held an earlier step.
func (k *Service) refuseRepeated(ctx context.Context, now Snapshot, step Step, sender Sender) error {
	g := now.Grant
	switch {
	case g == nil:
		return refuse(unknownToken)
	case g.State == Revoked:
		return refuse(g.words())
	case g.State == Active && g.Generation > step.Generation:
		return nil
	case step.Generation == 1:
		return k.end(ctx, *g, CodeReused, sender.ending(now, step.presented()))
	}
	return k.end(ctx, *g, Replayed, sender.ending(now, step.presented()))
}
