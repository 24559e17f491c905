package grant

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A Request is a token request with a code or a refresh token that this server issued.
type Request struct {
	Token  Token
	Terms  CodeTerms // of a refresh token only ClientID and Resource
	Scope  perm.Set  // what the access token of a refresh is to have; empty for all of the grant's permissions
	Sender Sender
}

// IsCode reports whether the request presents a code, and not a refresh token.
func (r Request) IsCode() bool { return r.Token.Generation == 0 }

// binding returns what Postgres stores of the code.
func (r Request) binding() []byte {
	return Binding(r.Token.Hash, r.Terms.RedirectURI, r.Terms.Challenge)
}

// step returns the step to a successor of the presented code or refresh token.
func (r Request) step(next successor) Step {
	step := Step{
		WorkspaceID: r.Token.WorkspaceID,
		GrantID:     r.Token.GrantID,
		Nonce:       newNonce(),
		Generation:  r.Token.Generation + 1,
		Hash:        next.hash,
	}
	if r.IsCode() {
		step.Binding = r.binding()
	} else {
		step.Former = r.Token.Hash // which Postgres has while the refresh token is current
	}
	return step
}

// unknown is the message for a code or refresh token that the client does not have.
func (r Request) unknown() string {
	if r.IsCode() {
		return unknownCode
	}
	return unknownToken
}

// reuse returns why a grant ends whose code or refresh token is presented again.
func (r Request) reuse() Reason {
	if r.IsCode() {
		return CodeReused
	}
	return Replayed
}

// superseded reports whether Postgres holds a later step than the presented code or refresh token.
func (r Request) superseded(snapshot Snapshot) bool {
	g := snapshot.Grant
	if r.IsCode() {
		return g.State == Active
	}
	return r.Token.Generation < g.Generation && snapshot.Now.Before(g.Ends)
}

// Issued is the result of a token request.
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

// Exchange exchanges a code once (G1), or a refresh token for the next one (G2, G3). It checks for a replay before
// anything else. A repeated request gets the same refresh token again (G11).
func (s *Service) Exchange(ctx context.Context, snapshot Snapshot, r Request) (Issued, error) {
	g := snapshot.Grant
	switch {
	case g == nil || g.ClientID != r.Terms.ClientID,
		!r.IsCode() && (!g.Kind.Traits().Refreshes || g.State == Pending):
		return Issued{}, refuse(r.unknown())
	case g.State == Revoked:
		return Issued{}, refuse(g.Reason.Words(g.RevokedAt))
	}
	r.Token.WorkspaceID = g.WorkspaceID
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limit)
	defer cancel()
	if r.superseded(snapshot) {
		return s.exchangeSuperseded(ctx, snapshot, r)
	}
	if err := snapshot.standingRefusal(); err != nil {
		return Issued{}, err
	}
	if len(r.Scope.Without(g.Permissions)) > 0 {
		return Issued{}, &Refusal{Code: "invalid_scope", Message: widerScope}
	}
	next := s.tokens.successorsOf(r.Token, r.Sender.Proof)
	step := r.step(next[0])
	step.GivenUp = g.GivenUp
	result, err := s.decideOrRepair(ctx, *g, step, r, next)
	if err != nil {
		return Issued{}, err
	}
	if place, again := result.again(len(next)); again {
		step.Hash = next[place].hash
		return s.repeat(ctx, snapshot, step, next[place], r)
	}
	if result == CodeSpent {
		return s.exchangeSpent(ctx, *g, r)
	}
	ending := r.Sender.ending(snapshot, r.Token)
	if err := s.refuseResult(ctx, *g, result, r, ending); err != nil {
		return Issued{}, err
	}
	outcome, err := s.commit(ctx, step, snapshot, r)
	if err != nil {
		return Issued{}, err
	}
	if outcome == Refused { // Postgres has a later step than Redis: this code or token was used before
		return Issued{}, s.endRefused(ctx, *g, step, r.reuse(), ending)
	}
	return snapshot.issue(next[0]), nil
}

// exchangeSuperseded handles a code or refresh token whose successor Postgres holds. Either this request repeats an
// earlier one, or the earlier one was undone, or this request is a replay. Only Postgres proves the reuse of a code
// (G1).
func (s *Service) exchangeSuperseded(ctx context.Context, snapshot Snapshot, r Request) (Issued, error) {
	g := snapshot.Grant
	bound := !r.IsCode() || bytes.Equal(g.CodeBinding, r.binding())
	why, err := s.whySuperseded(ctx, snapshot, r, bound && g.Resource == r.Terms.Resource)
	switch {
	case err != nil:
		return Issued{}, err
	case why.repeats:
		return s.repeat(ctx, snapshot, why.step, why.next, r)
	case why.undone:
		return s.Exchange(ctx, why.now, r)
	case r.IsCode() && g.Resource != r.Terms.Resource:
		return Issued{}, &Refusal{Code: "invalid_target", Message: wrongTarget}
	case !bound:
		return Issued{}, refuse("The authorization code was already used.")
	}
	return Issued{}, s.end(ctx, *g, r.reuse(), r.Sender.ending(snapshot, r.Token))
}

// exchangeSpent handles a code that was unused in Postgres at first and then used in Redis.
func (s *Service) exchangeSpent(ctx context.Context, g Grant, r Request) (Issued, error) {
	now, err := s.store.Snapshot(ctx, r.Terms.ClientID, g.Key(), nil)
	if err != nil {
		return Issued{}, err
	}
	if now.Grant == nil || now.Grant.State == Pending {
		return Issued{}, refuse(unknownCode)
	}
	return s.Exchange(ctx, now, r)
}

// decideOrRepair calls Redis. It restores the grant of a refresh token there from Postgres, once, if Redis has lost it.
func (s *Service) decideOrRepair(
	ctx context.Context, g Grant, step Step, r Request, next successors,
) (ScriptResult, error) {
	call := func(ctx context.Context) (ScriptResult, error) {
		return s.rotations.Decide(ctx, step, r, next.hashes())
	}
	result, err := s.decide(ctx, step, call)
	if err != nil || r.IsCode() || (result != Missing && result != Ahead) {
		return result, err
	}
	repairing, cancel := context.WithTimeout(ctx, s.redisTime)
	defer cancel()
	if err := s.rotations.Repair(repairing, g); err != nil {
		return "", err
	}
	return s.decide(ctx, step, call)
}

// refuseResult returns why a script has not decided, or nil. A grant that it has revoked ends in Postgres first (G9).
func (s *Service) refuseResult(ctx context.Context, g Grant, result ScriptResult, r Request, ending *Ending) error {
	if reason, gone := strings.CutPrefix(string(result), "revoked:"); gone { // it was revoked already
		return s.end(ctx, g, Reason(reason), nil)
	}
	switch result {
	case OK:
		return nil
	case Reused, Replay:
		return s.end(ctx, g, r.reuse(), ending)
	case TooManyTries:
		return s.end(ctx, g, CodeGuessed, nil)
	case WrongResource:
		return &Refusal{Code: "invalid_target", Message: wrongTarget}
	case Ended:
		return refuse(over)
	case WrongVerifier:
		if r.Terms.Challenge == "" { // a confidential client: contract, section 3
			return &Refusal{Code: "invalid_request", Message: missingVerifier}
		}
	}
	if message, ok := codeRefusals[result]; ok && r.IsCode() {
		return refuse(message)
	}
	return refuse(r.unknown())
}

// ExchangeDirectly is Exchange with one script and one statement, without a snapshot. It is only for clients without
// authentication, and only for a refresh token that is current, or a code that is unused and matches the terms. If
// anything else is the case, it changes nothing and returns false; then Exchange must decide. Its error wraps
// store.ErrUnavailable.
func (s *Service) ExchangeDirectly(ctx context.Context, r Request) (issued Issued, done bool, err error) {
	if !s.store.Responds() || !s.rotations.Responds(ctx, r.Token.GrantID) { // one store may be enough to refuse it
		return Issued{}, false, nil
	}
	r.Token, err = s.locate(ctx, r.Token)
	if errors.Is(err, ErrUnknown) {
		return Issued{}, false, nil
	}
	if err == nil {
		err = s.undos.wait(ctx, r.Token.GrantID)
	}
	if err != nil {
		return Issued{}, false, err
	}
	next := s.tokens.successorsOf(r.Token, r.Sender.Proof)
	snapshot, done, err := s.stepDirectly(ctx, r.step(next[0]), r, next)
	if !done || err != nil {
		return Issued{}, false, err
	}
	return snapshot.issue(next[0]), true, nil
}

// stepDirectly takes a step in Redis and then in Postgres. done reports that both have taken it and the signing key is
// loaded. Otherwise it is undone: a refusal must not use up the credential. The caller then reads a snapshot, which
// shows the reason.
func (s *Service) stepDirectly(
	ctx context.Context, step Step, r Request, next successors,
) (snapshot Snapshot, done bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limit)
	defer cancel()
	step.Began = time.Now()
	result, uncertain, err := s.callRedis(ctx, step.GrantID, func(ctx context.Context) (ScriptResult, error) {
		return s.rotations.Decide(ctx, step, r, next.hashes())
	})
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
	outcome, unknown, err := s.update(ctx, func() (outcome UpdateResult, err error) {
		snapshot, outcome, err = s.store.AdvanceDirectly(ctx, step, r.Terms, r.Scope)
		return outcome, err
	})
	if err == nil && outcome == Overtaken {
		done, err = s.mayReturnOvertaken(ctx, step, r.Terms.ClientID)
	} else {
		done = err == nil && outcome == Updated
	}
	if done {
		if err = r.Sender.loadKey(ctx, snapshot); err == nil {
			return snapshot, true, nil
		}
		unknown = true // Postgres has committed it
	}
	var how Undo
	if err == nil && !uncertain && !unknown {
		how = Undo{Refused: true, Former: former}
	}
	undone, overtaken := s.undo(ctx, step, how)
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
	now, err := s.store.Snapshot(ctx, clientID, step.Key(), nil)
	if err != nil || now.Client == nil || now.Grant == nil {
		return false, err
	}
	return now.Client.AuthMethod == client.AuthNone && now.standingRefusal() == nil, nil
}
