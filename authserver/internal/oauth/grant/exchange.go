package grant

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A Request is a token request with a code or a refresh token that this server issued.
type Request struct {
	Token  Token
	Terms  CodeTerms // of a refresh token only ClientID and Resource
	Scope  perm.Set  // what the access token of a refresh is to have; empty for all of the grant's permissions
	Sender Sender

	// LoadKey loads one of these keys, none of which is removed, to sign the access token. If it returns an error, the
	// credential is not used up (G10).
	LoadKey func(ctx context.Context, keyIDs []string) error
}

// A Sender is what a token request says about its sender.
type Sender struct {
	Proof     Proof
	Network   string // shortened; "" if it is unknown
	UserAgent string // shortened
}

// IsCode reports whether the request presents a code, and not a refresh token.
func (r Request) IsCode() bool { return r.Token.Generation == 0 }

// binding returns what Postgres stores of the code.
func (r Request) binding() []byte {
	return Binding(r.Token.Hash, r.Terms.RedirectURI, r.Terms.Challenge)
}

// step returns the step from the presented code or refresh token to the token with this hash. Its nonce has 16
// characters: three with separators stay below the size at which Redis stores a grant less compactly (KEYS.md).
func (r Request) step(next []byte) Step {
	var random [12]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	step := Step{
		WorkspaceID: r.Token.WorkspaceID,
		GrantID:     r.Token.GrantID,
		Nonce:       base64.RawURLEncoding.EncodeToString(random[:]),
		Generation:  r.Token.Generation + 1,
		Hash:        next,
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

// reuseReason returns why a grant ends whose code or refresh token is presented again.
func (r Request) reuseReason() Reason {
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
func (s Snapshot) issue(refresh credential.Secret) Issued {
	issued := Issued{Grant: *s.Grant, Now: s.Now}
	if s.Grant.Kind.Traits().Refreshes {
		issued.Refresh = refresh
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
	next := s.Tokens.successorsOf(r.Token, r.Sender.Proof)
	step := r.step(next.hashes[0])
	step.GivenUp = g.GivenUp
	result, err := s.decideOrRepair(ctx, *g, step, r, next.hashes)
	if err != nil {
		return Issued{}, err
	}
	if place, again := result.again(len(next.hashes)); again {
		step.Hash = next.hashes[place]
		return s.repeat(ctx, snapshot, step, next.secrets[place], r)
	}
	if result == CodeSpent {
		return s.exchangeSpent(ctx, *g, r)
	}
	if err := s.refuseResult(ctx, snapshot, result, r); err != nil {
		return Issued{}, err
	}
	outcome, err := s.commit(ctx, step, snapshot, r)
	if err != nil {
		return Issued{}, err
	}
	if outcome == Refused { // Postgres has a later step than Redis: this code or token was used before
		if err := s.undo(ctx, step, Undo{Refused: true}, false); err != nil {
			return Issued{}, err
		}
		return Issued{}, s.endReused(ctx, snapshot, r)
	}
	return snapshot.issue(next.secrets[0]), nil
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
		return s.repeat(ctx, snapshot, why.step, why.refresh, r)
	case why.undone:
		return s.Exchange(ctx, why.now, r)
	case r.IsCode() && g.Resource != r.Terms.Resource:
		return Issued{}, &Refusal{Code: "invalid_target", Message: wrongTarget}
	case !bound:
		return Issued{}, refuse("The authorization code was already used.")
	}
	return Issued{}, s.endReused(ctx, snapshot, r)
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
	ctx context.Context, g Grant, step Step, r Request, next [][]byte,
) (ScriptResult, error) {
	call := func(ctx context.Context) (ScriptResult, error) { return s.rotations.Decide(ctx, step, r, next) }
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
func (s *Service) refuseResult(ctx context.Context, snapshot Snapshot, result ScriptResult, r Request) error {
	if reason, gone := strings.CutPrefix(string(result), "revoked:"); gone { // it was revoked already
		return s.end(ctx, *snapshot.Grant, Reason(reason), nil)
	}
	switch result {
	case OK:
		return nil
	case Reused, Replay:
		return s.endReused(ctx, snapshot, r)
	case TooManyTries:
		return s.end(ctx, *snapshot.Grant, CodeGuessed, nil)
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
// authentication, and only for a refresh token that is current, or a code that is unused and matches the terms. done
// reports that both stores have taken the step and the signing key is loaded. Otherwise the step is undone, because a
// refusal must not use up the credential. The caller then calls Exchange with a snapshot, which shows the reason. The
// error wraps store.ErrUnavailable.
func (s *Service) ExchangeDirectly(ctx context.Context, r Request) (issued Issued, done bool, err error) {
	if !s.store.Responds() || !s.rotations.Responds(ctx, r.Token.GrantID) { // one store may be enough to refuse it
		return Issued{}, false, nil
	}
	key, err := s.locate(ctx, r.Token.Key())
	if errors.Is(err, ErrUnknown) {
		return Issued{}, false, nil
	}
	if err != nil {
		return Issued{}, false, err
	}
	r.Token.WorkspaceID = key.WorkspaceID
	next := s.Tokens.successorsOf(r.Token, r.Sender.Proof)
	step := r.step(next.hashes[0])
	step.Began = time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limit)
	defer cancel()
	result, uncertain, err := s.callRedis(ctx, step.GrantID, func(ctx context.Context) (ScriptResult, error) {
		return s.rotations.Decide(ctx, step, r, next.hashes)
	})
	former, decided := result.decided()
	decided = decided && err == nil
	if uncertain && !decided { // a call without a response may still arrive, even if a later call got one
		s.undos.add(ctx, step)
	}
	if err != nil && !uncertain {
		return Issued{}, false, nil
	}
	if !decided {
		return Issued{}, false, err
	}
	var snapshot Snapshot
	outcome, unknown, err := s.update(func() (outcome UpdateResult, err error) {
		snapshot, outcome, err = s.store.AdvanceDirectly(ctx, step, r.Terms, r.Scope)
		return outcome, err
	})
	done = err == nil && outcome == Updated
	if err == nil && outcome == Overtaken {
		done, err = s.mayReturnOvertaken(ctx, step, r.Terms.ClientID)
	}
	if done {
		if err = r.LoadKey(ctx, snapshot.KeyIDs); err == nil {
			return snapshot.issue(next.secrets[0]), true, nil
		}
		unknown = true // Postgres has committed it
	}
	var how Undo
	if err == nil && !uncertain && !unknown {
		how = Undo{Refused: true, Former: former}
	}
	return Issued{}, false, cmp.Or(err, s.undo(ctx, step, how, unknown))
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

// repeat returns the refresh token of an earlier request. It also commits the step, because the earlier request may be
// in progress or may be given up: the token must stay current if any of the requests returns it.
func (s *Service) repeat(
	ctx context.Context, snapshot Snapshot, step Step, refresh credential.Secret, r Request,
) (Issued, error) {
	outcome, err := s.commit(ctx, step, snapshot, r)
	if err != nil {
		return Issued{}, err
	}
	if outcome != Updated {
		now, err := s.store.Snapshot(ctx, snapshot.Grant.ClientID, step.Key(), nil)
		if err != nil {
			return Issued{}, err
		}
		switch g := now.Grant; {
		case g == nil:
			return Issued{}, refuse(unknownToken)
		case g.State == Revoked:
			return Issued{}, refuse(g.Reason.Words(g.RevokedAt))
		case g.State == Active && g.Generation > r.Token.Generation+1: // used after this request began
		default: // Redis allowed it, but Postgres does not
			return Issued{}, s.endReused(ctx, now, r)
		}
	}
	issued := snapshot.issue(refresh)
	issued.Repeated = true
	return issued, nil
}
