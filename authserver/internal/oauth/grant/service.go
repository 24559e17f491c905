package grant

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/credential"
)

// A Service stores grants in both stores, in the order that the invariants require. It is safe for concurrent use.
type Service struct {
	store     GrantStore
	rotations RotationStore
	tokens    *TokenCodec
	log       *slog.Logger

	undos *undoQueue
}

// NewService returns a Service over the two stores.
func NewService(grants GrantStore, rotations RotationStore, tokens *TokenCodec, log *slog.Logger) *Service {
	return &Service{
		store:     grants,
		rotations: rotations,
		tokens:    tokens,
		log:       log,
		undos:     newUndoQueue(grants, log),
	}
}

// decisionTime limits the work after a script may have decided. The caller's context no longer counts then: a client
// that disconnects must not leave a decision half written.
const decisionTime = 5 * time.Second

// ErrAlreadyUsed reports that a consent was used: its code was redeemed, or the grant has ended.
var ErrAlreadyUsed = errors.New("consent already used")

// ErrUnknown reports that the grant does not exist.
var ErrUnknown = errors.New("no such grant")

// ErrPolicy reports that the workspace's connector policy allows nothing of what was approved.
var ErrPolicy = errors.New("the workspace's connector policy does not allow this")

// Snapshot reads a client and a grant; a zero grant id reads only the client. It waits briefly while a given-up
// decision about the grant is being undone in Postgres, and returns store.ErrUnavailable if that takes longer.
func (k *Service) Snapshot(ctx context.Context, clientID, grantID uuid.UUID) (Snapshot, error) {
	if err := k.undos.wait(ctx, grantID); err != nil {
		return Snapshot{}, err
	}
	return k.store.Facts(ctx, clientID, grantID)
}

// SnapshotWithSecret is like Snapshot, and includes the client's live secret with this hash for client authentication.
func (k *Service) SnapshotWithSecret(
	ctx context.Context,
	clientID, grantID uuid.UUID,
	secretHash []byte,
) (Snapshot, error) {
	if err := k.undos.wait(ctx, grantID); err != nil {
		return Snapshot{}, err
	}
	return k.store.FactsWithSecret(ctx, clientID, grantID, secretHash)
}

// ReadToken parses a token without I/O, or returns ErrForged.
func (k *Service) ReadToken(kind TokenKind, text credential.Secret) (Token, error) {
	return k.tokens.Read(kind, text.Reveal())
}

// Open creates the pending grant of a consent and returns its code. A second call with the same id replaces a code that
// is still unused; after its redemption, Open returns ErrAlreadyUsed. If the workspace's policy became narrower
// meanwhile, so does the grant, or Open returns ErrPolicy.
//
// Redis decides first whether the approval's code is valid, and only then Postgres stores what was approved. An
// approval that loses to the redemption of an earlier code therefore changes nothing. A redeemable code always has the
// permissions of its own approval in Postgres, because it is returned after they are committed (G12). An approval that
// Postgres refuses is withdrawn from Redis, so that the earlier code is valid again. A crash in between leaves a code
// that no client has.
func (k *Service) Open(ctx context.Context, g Grant, terms CodeTerms) (credential.Secret, error) {
	secret, code := k.tokens.New(Code, g.ID, 0)
	g.State, g.CodeBinding = Pending, Binding(code.Hash, terms.RedirectURI, terms.Challenge)
	approval, err := k.store.Approve(ctx, g.ID)
	if err != nil {
		return "", err
	}
	if approval.State != Pending {
		return "", ErrAlreadyUsed
	}
	if g.Life > 0 {
		g.Ends = approval.Now.Add(g.Life)
	}
	result, err := k.issue(ctx, g, approval.Number, code, terms)
	if err != nil {
		return "", err
	}
	if result != OK {
		return "", ErrAlreadyUsed
	}
	state, err := k.store.Open(ctx, g, approval.Number)
	if err == nil && state != Pending {
		err = ErrAlreadyUsed
	}
	if err != nil {
		if !errors.Is(err, store.ErrUnavailable) { // otherwise the approval may have been stored
			k.withdraw(ctx, g.ID, approval.Number)
		}
		return "", err
	}
	return secret, nil
}

// withdraw removes an approval that Postgres has refused from Redis, so that the earlier code is valid again (G12). If
// Redis does not respond, that code is lost, and nothing is granted.
func (k *Service) withdraw(ctx context.Context, id uuid.UUID, approval int) {
	ctx = context.WithoutCancel(ctx)
	_, _, err := k.ask(
		ctx,
		id,
		func(ctx context.Context) (ScriptResult, error) { return k.rotations.Withdraw(ctx, id, approval) },
	)
	if err != nil {
		k.log.WarnContext(ctx, "rejected approval not removed from Redis; the earlier code is invalid",
			"grant_id", id, "error", err)
	}
}

// Deny ends the pending grant of a consent that the user refuses. It returns ErrAlreadyUsed if the code was redeemed
// before; the user can still disconnect the client.
func (k *Service) Deny(ctx context.Context, g Grant, actor string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), decisionTime)
	defer cancel()
	if err := k.store.Deny(ctx, g.ID, actor); err != nil {
		return err
	}
	k.PropagateRevocation(ctx, g.ID, g.Ends, ByUser)
	return nil
}

// issue makes the code redeemable. A call without a response may be repeated: the approval's number distinguishes it
// from a later approval.
func (k *Service) issue(ctx context.Context, g Grant, approval int, code Token, terms CodeTerms) (ScriptResult, error) {
	ask := func(ctx context.Context) (ScriptResult, error) {
		return k.rotations.Issue(ctx, g.ID, approval, code.Hash, terms, g.Ends)
	}
	result, _, err := k.ask(ctx, g.ID, ask)
	return result, err
}

// Issued is the result of a redemption or a rotation.
type Issued struct {
	Grant   Grant
	Now     time.Time         // Postgres's clock, for the token's times
	Refresh credential.Secret // empty for confidential grants (G5)
}

// Redeem exchanges a code once (G1).
func (k *Service) Redeem(ctx context.Context, snapshot Snapshot, code Token, terms CodeTerms) (Issued, error) {
	g := snapshot.Grant
	if g == nil || g.ClientID != terms.ClientID {
		return Issued{}, refuse(unknownCode)
	}
	switch g.State {
	case Revoked:
		return Issued{}, refuse(g.Reason.Words(g.RevokedAt))
	case Active:
		again, back, err := k.undoneElsewhere(ctx, snapshot, 0, nil)
		if err != nil {
			return Issued{}, err
		}
		if back {
			return k.Redeem(ctx, again, code, terms)
		}
		return Issued{}, k.redeemedAgain(ctx, *g, code, terms)
	}
	if err := snapshot.standingRefusal(); err != nil {
		return Issued{}, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), decisionTime)
	defer cancel()
	issued := Issued{Grant: *g, Now: snapshot.Now}
	secret, next := k.tokens.New(Refresh, g.ID, 1)
	if g.Kind.Traits().Refreshes {
		issued.Refresh = secret
	}
	step := Step{GrantID: g.ID, Nonce: uuid.NewString(), Generation: 1, Hash: next.Hash}
	result, err := k.decide(ctx, step, func(ctx context.Context) (ScriptResult, error) {
		return k.rotations.Exchange(ctx, Try{g.ID, step.Nonce, g.GivenUp}, code.Hash, terms, next.Hash)
	})
	if err != nil {
		return Issued{}, err
	}
	if result == CodeSpent {
		return Issued{}, k.redeemedMeanwhile(ctx, *g, code, terms)
	}
	if err := k.answerExchange(ctx, *g, result); err != nil {
		return Issued{}, err
	}
	outcome, err := k.commit(ctx, step, snapshot, func() (UpdateResult, error) {
		return k.store.Activate(ctx, step, Binding(code.Hash, terms.RedirectURI, terms.Challenge))
	})
	if err != nil {
		return Issued{}, err
	}
	if outcome == Refused { // Redis has lost the redemption of the code
		return Issued{}, k.end(ctx, *g, CodeReused)
	}
	return issued, nil
}

// redeemedAgain handles a code whose grant is active. Postgres alone proves the reuse (G1).
func (k *Service) redeemedAgain(ctx context.Context, g Grant, code Token, terms CodeTerms) error {
	if g.Resource != terms.Resource {
		return &Refusal{Target: true, Message: wrongTarget}
	}
	if !bytes.Equal(g.CodeBinding, Binding(code.Hash, terms.RedirectURI, terms.Challenge)) {
		return refuse("The authorization code was already used.")
	}
	return k.end(ctx, g, CodeReused)
}

// redeemedMeanwhile handles a code that was unused in Postgres at first and then used in Redis.
func (k *Service) redeemedMeanwhile(ctx context.Context, g Grant, code Token, terms CodeTerms) error {
	snapshot, err := k.store.Facts(ctx, terms.ClientID, g.ID)
	switch now := snapshot.Grant; {
	case err != nil:
		return err
	case now != nil && now.State == Revoked:
		return refuse(now.Reason.Words(now.RevokedAt))
	case now != nil && now.State == Active:
		return k.redeemedAgain(ctx, *now, code, terms)
	}
	return refuse(unknownCode)
}

func (k *Service) answerExchange(ctx context.Context, g Grant, result ScriptResult) error {
	if reason, gone := result.revokedReason(); gone {
		return k.end(ctx, g, reason)
	}
	switch result {
	case OK:
		return nil
	case Reused:
		return k.end(ctx, g, CodeReused)
	case TooManyTries:
		return k.end(ctx, g, CodeGuessed)
	case WrongResource:
		return &Refusal{Target: true, Message: wrongTarget}
	case WrongRedirectURI:
		return refuse("redirect_uri must exactly match the redirect_uri of the authorization request.")
	case WrongVerifier:
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

// Rotate exchanges a refresh token for the next one (G2, G3). It checks for a replay before anything else.
func (k *Service) Rotate(
	ctx context.Context,
	snapshot Snapshot,
	old Token,
	clientID uuid.UUID,
	resource string,
) (Issued, error) {
	g := snapshot.Grant
	if g == nil || g.ClientID != clientID || !g.Kind.Traits().Refreshes || g.State == Pending {
		return Issued{}, refuse(unknownToken)
	}
	if g.State == Revoked {
		return Issued{}, refuse(g.Reason.Words(g.RevokedAt))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), decisionTime)
	defer cancel()
	if old.Generation < g.Generation && snapshot.Now.Before(g.Ends) {
		again, back, err := k.undoneElsewhere(ctx, snapshot, old.Generation, old.Hash)
		if err != nil {
			return Issued{}, err
		}
		if back {
			return k.Rotate(ctx, again, old, clientID, resource)
		}
		return Issued{}, k.end(ctx, *g, Replayed)
	}
	if err := snapshot.standingRefusal(); err != nil {
		return Issued{}, err
	}
	secret, next := k.tokens.New(Refresh, g.ID, old.Generation+1)
	step := Step{
		GrantID:    g.ID,
		Nonce:      uuid.NewString(),
		Generation: next.Generation,
		Hash:       next.Hash,
		Former:     old.Hash,
	}
	result, err := k.rotate(ctx, *g, step, old, resource)
	if err != nil {
		return Issued{}, err
	}
	if err := k.answerRotation(ctx, *g, result); err != nil {
		return Issued{}, err
	}
	outcome, err := k.commit(ctx, step, snapshot, func() (UpdateResult, error) { return k.store.Advance(ctx, step) })
	if err != nil {
		return Issued{}, err
	}
	if outcome == Refused { // Postgres has a later generation than Redis: this token was superseded
		return Issued{}, k.end(ctx, *g, Replayed)
	}
	return Issued{Grant: *g, Now: snapshot.Now, Refresh: secret}, nil
}

// rotate calls Redis, and restores the grant there from Postgres, once, if Redis has lost it.
func (k *Service) rotate(ctx context.Context, g Grant, step Step, old Token, resource string) (ScriptResult, error) {
	ask := func(ctx context.Context) (ScriptResult, error) {
		return k.rotations.Rotate(ctx, Try{g.ID, step.Nonce, g.GivenUp}, old, g.ClientID, resource, step.Hash)
	}
	result, err := k.decide(ctx, step, ask)
	if err != nil || (result != Missing && result != Ahead) {
		return result, err
	}
	if err := k.repair(ctx, g); err != nil {
		return "", err
	}
	return k.decide(ctx, step, ask)
}

func (k *Service) repair(ctx context.Context, g Grant) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return k.rotations.Repair(ctx, g)
}

func (k *Service) answerRotation(ctx context.Context, g Grant, result ScriptResult) error {
	if reason, gone := result.revokedReason(); gone {
		return k.end(ctx, g, reason)
	}
	switch result {
	case OK:
		return nil
	case Replay:
		return k.end(ctx, g, Replayed)
	case WrongResource:
		return &Refusal{Target: true, Message: wrongTarget}
	case Ended:
		return refuse(over)
	}
	return refuse(unknownToken)
}

// end revokes the grant for a reason that the client caused, and reports it once Postgres has committed (G9). If Redis
// has revoked already, Postgres may not have done so; the first request to see the revocation then commits it.
func (k *Service) end(ctx context.Context, g Grant, reason Reason) error {
	if err := k.revoke(ctx, g.ID, g.Ends, reason, "client:"+g.ClientID.String()); err != nil {
		return err
	}
	return &Refusal{Message: reason.Words(nil), Ended: reason}
}

// Revoke ends a grant permanently (G7). It returns once Postgres has committed. Redis is updated if possible; nothing
// depends on it.
func (k *Service) Revoke(ctx context.Context, g Grant, reason Reason, actor string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), decisionTime)
	defer cancel()
	return k.revoke(ctx, g.ID, g.Ends, reason, actor)
}

func (k *Service) revoke(ctx context.Context, id uuid.UUID, ends time.Time, reason Reason, actor string) error {
	if err := k.store.Revoke(ctx, id, reason, actor); err != nil {
		return err
	}
	k.PropagateRevocation(ctx, id, ends, reason)
	return nil
}

// PropagateRevocation revokes a grant in Redis that Postgres has revoked in the transaction of its cause.
func (k *Service) PropagateRevocation(ctx context.Context, id uuid.UUID, ends time.Time, reason Reason) {
	if err := k.rotations.Revoke(ctx, id, reason, ends); err != nil {
		k.log.WarnContext(ctx, "revocation not propagated to Redis; Postgres still refuses the grant",
			"grant_id", id, "reason", reason, "error", err)
	}
}
