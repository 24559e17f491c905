package grant

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/credential"
)

// A Keeper keeps grants in both stores, in the order that the invariants need. It is safe for concurrent use.
type Keeper struct {
	ledger   Ledger
	register Register
	mint     *Mint
	log      *slog.Logger

	takingBack chan struct{} // bounds takeBack
}

const takeBackAtOnce = 256

// NewKeeper makes a Keeper of the two stores.
func NewKeeper(ledger Ledger, register Register, mint *Mint, log *slog.Logger) *Keeper {
	return &Keeper{ledger: ledger, register: register, mint: mint, log: log, takingBack: make(chan struct{}, takeBackAtOnce)}
}

// decisionTime bounds what follows once a script may have decided. The caller's own context no longer counts then: a
// client that hangs up must not leave a decision half written.
const decisionTime = 5 * time.Second

// ErrTaken says that a consent cannot be given again: its code was redeemed, or the grant has ended.
var ErrTaken = errors.New("this consent was used already")

// ErrPolicy says that the workspace's connector policy allows nothing of what was approved.
var ErrPolicy = errors.New("the workspace's connector policy does not allow this")

// Facts reads what is known of a client and a grant; a zero grant id reads the client alone.
func (k *Keeper) Facts(ctx context.Context, clientID, grantID uuid.UUID) (Facts, error) {
	return k.ledger.Facts(ctx, clientID, grantID)
}

// FactsWithSecret is Facts with the client's live secret of this hash, for callers that check who the client is.
func (k *Keeper) FactsWithSecret(ctx context.Context, clientID, grantID uuid.UUID, secretHash []byte) (Facts, error) {
	return k.ledger.FactsWithSecret(ctx, clientID, grantID, secretHash)
}

// ReadToken takes a token apart without I/O, or returns ErrForged.
func (k *Keeper) ReadToken(kind TokenKind, text credential.Secret) (Token, error) {
	return k.mint.Read(kind, text.Reveal())
}

// Open makes the grant of a consent pending and returns its code. A second call with the same id replaces a code that is
// still unused; after its redemption, ErrTaken. Where the policy of the workspace became narrower meanwhile, so is the grant, or ErrPolicy.
//
// The Register decides first whether the approval's code counts, and the Ledger stores what was approved only then. So an approval
// that loses to the redemption of an earlier code changes nothing, and a code that can be redeemed always has its own approval's
// permissions in the Ledger, as it is returned after they are committed (G12). A crash in between leaves a code that no one has.
func (k *Keeper) Open(ctx context.Context, g Grant, terms CodeTerms) (credential.Secret, error) {
	secret, code := k.mint.New(Code, g.ID, 0)
	g.State, g.CodeBinding = Pending, Binding(code.Hash, terms.RedirectURI, terms.Challenge)
	approval, err := k.ledger.Approve(ctx, g.ID)
	if err != nil {
		return "", err
	}
	if approval.State != Pending {
		return "", ErrTaken
	}
	if g.Life > 0 {
		g.Ends = approval.Now.Add(g.Life)
	}
	word, err := k.register.Issue(ctx, g.ID, approval.Number, code.Hash, terms, g.Ends)
	if err != nil {
		return "", err
	}
	if word != OK {
		return "", ErrTaken
	}
	state, err := k.ledger.Open(ctx, g, approval.Number)
	if err != nil {
		return "", err
	}
	if state != Pending {
		return "", ErrTaken
	}
	return secret, nil
}

// Issued is what a redemption or a rotation gave.
type Issued struct {
	Grant   Grant
	Now     time.Time         // the Ledger's clock, for the token's times
	Refresh credential.Secret // empty for confidential grants (G5)
}

// Redeem exchanges a code once (G1).
func (k *Keeper) Redeem(ctx context.Context, facts Facts, code Token, terms CodeTerms) (Issued, error) {
	g := facts.Grant
	if g == nil || g.ClientID != terms.ClientID {
		return Issued{}, refuse(unknownCode)
	}
	switch g.State {
	case Revoked:
		return Issued{}, refuse(g.Reason.Words(g.RevokedAt))
	case Active:
		return Issued{}, k.redeemedAgain(ctx, *g, code, terms)
	}
	if err := facts.standingRefusal(); err != nil {
		return Issued{}, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), decisionTime)
	defer cancel()
	issued := Issued{Grant: *g, Now: facts.Now}
	secret, next := k.mint.New(Refresh, g.ID, 1)
	if g.Kind.Traits().Refreshes {
		issued.Refresh = secret
	}
	nonce := uuid.NewString()
	word, err := k.decide(ctx, g.ID, nonce, func() (Word, error) {
		return k.register.Exchange(ctx, g.ID, nonce, code.Hash, terms, next.Hash)
	})
	if err != nil {
		return Issued{}, err
	}
	if word == Spent {
		return Issued{}, k.redeemedMeanwhile(ctx, *g, code, terms)
	}
	if err := k.answerExchange(ctx, *g, word); err != nil {
		return Issued{}, err
	}
	fence, err := k.commit(ctx, g.ID, nonce, func() (Fence, error) {
		return k.ledger.Activate(ctx, g.ID, Attempt{next.Hash, Binding(code.Hash, terms.RedirectURI, terms.Challenge)})
	})
	if err != nil {
		return Issued{}, err
	}
	if fence == Refused { // the Register had forgotten that the code was used
		return Issued{}, k.end(ctx, *g, CodeReused)
	}
	return issued, nil
}

// redeemedAgain judges a code whose grant is active: the Ledger alone proves the reuse (G1).
func (k *Keeper) redeemedAgain(ctx context.Context, g Grant, code Token, terms CodeTerms) error {
	if g.Resource != terms.Resource {
		return &Refusal{Target: true, Message: wrongTarget}
	}
	if !bytes.Equal(g.CodeBinding, Binding(code.Hash, terms.RedirectURI, terms.Challenge)) {
		return refuse("The authorization code was used already.")
	}
	return k.end(ctx, g, CodeReused)
}

// redeemedMeanwhile judges a code that was unused when the Ledger was asked, and had long been used when the Register was.
func (k *Keeper) redeemedMeanwhile(ctx context.Context, g Grant, code Token, terms CodeTerms) error {
	facts, err := k.ledger.Facts(ctx, terms.ClientID, g.ID)
	switch now := facts.Grant; {
	case err != nil:
		return err
	case now != nil && now.State == Revoked:
		return refuse(now.Reason.Words(now.RevokedAt))
	case now != nil && now.State == Active:
		return k.redeemedAgain(ctx, *now, code, terms)
	}
	return refuse(unknownCode)
}

func (k *Keeper) answerExchange(ctx context.Context, g Grant, word Word) error {
	if reason, gone := word.gone(); gone {
		return k.end(ctx, g, reason)
	}
	switch word {
	case OK:
		return nil
	case Reused:
		return k.end(ctx, g, CodeReused)
	case Burned:
		return k.end(ctx, g, CodeGuessed)
	case WrongRes:
		return &Refusal{Target: true, Message: wrongTarget}
	case WrongURI:
		return refuse("redirect_uri is not, to the letter, the one that the code was sent to.")
	case WrongPKC:
		return refuse("code_verifier does not match the code_challenge of the authorization request.")
	case Late:
		return fmt.Errorf("%w: the decision was taken back", ErrUnavailable)
	case Expired, Missing:
		return refuse("The authorization code has expired: it is good for 60 seconds. Send the user to the consent page again.")
	case Replaced:
		return refuse("The authorization code was replaced by a newer one.")
	case Ended:
		return refuse(over)
	}
	return refuse(unknownCode)
}

// Rotate exchanges a refresh token for the next one (G2, G3). A replay is recognised before anything else is asked.
func (k *Keeper) Rotate(ctx context.Context, facts Facts, old Token, clientID uuid.UUID, resource string) (Issued, error) {
	g := facts.Grant
	if g == nil || g.ClientID != clientID || !g.Kind.Traits().Refreshes || g.State == Pending {
		return Issued{}, refuse(unknownToken)
	}
	if g.State == Revoked {
		return Issued{}, refuse(g.Reason.Words(g.RevokedAt))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), decisionTime)
	defer cancel()
	if old.Generation < g.Generation && facts.Now.Before(g.Ends) {
		return Issued{}, k.end(ctx, *g, Replayed)
	}
	if err := facts.standingRefusal(); err != nil {
		return Issued{}, err
	}
	secret, next := k.mint.New(Refresh, g.ID, old.Generation+1)
	nonce := uuid.NewString()
	word, err := k.rotate(ctx, *g, nonce, old, resource, next.Hash)
	if err != nil {
		return Issued{}, err
	}
	if err := k.answerRotation(ctx, *g, word); err != nil {
		return Issued{}, err
	}
	fence, err := k.commit(ctx, g.ID, nonce, func() (Fence, error) {
		return k.ledger.Advance(ctx, g.ID, next.Generation, next.Hash)
	})
	if err != nil {
		return Issued{}, err
	}
	if fence == Refused { // the Ledger is further than the Register remembered: this token was superseded
		return Issued{}, k.end(ctx, *g, Replayed)
	}
	return Issued{Grant: *g, Now: facts.Now, Refresh: secret}, nil
}

// rotate asks the Register, and brings it up to date from the Ledger, once, if it has lost what it knew.
func (k *Keeper) rotate(ctx context.Context, g Grant, nonce string, old Token, resource string, next []byte) (Word, error) {
	ask := func() (Word, error) { return k.register.Rotate(ctx, nonce, old, g.ClientID, resource, next) }
	word, err := k.decide(ctx, g.ID, nonce, ask)
	if err != nil || (word != Missing && word != Ahead) {
		return word, err
	}
	if err := k.register.Repair(ctx, g); err != nil {
		return "", err
	}
	return k.decide(ctx, g.ID, nonce, ask)
}

func (k *Keeper) answerRotation(ctx context.Context, g Grant, word Word) error {
	if reason, gone := word.gone(); gone {
		return k.end(ctx, g, reason)
	}
	switch word {
	case OK:
		return nil
	case Replay:
		return k.end(ctx, g, Replayed)
	case WrongRes:
		return &Refusal{Target: true, Message: wrongTarget}
	case Ended:
		return refuse(over)
	case Late:
		return fmt.Errorf("%w: the decision was taken back", ErrUnavailable)
	}
	return refuse(unknownToken)
}

// end revokes for a reason that the caller caused, and says so once the Ledger has committed it (G9). Where the Register has
// revoked already, the Ledger may not know it yet, or never have got it: whoever hears of the revocation first sees to that.
func (k *Keeper) end(ctx context.Context, g Grant, reason Reason) error {
	if err := k.revoke(ctx, g.ID, g.Ends, reason, "client:"+g.ClientID.String()); err != nil {
		return err
	}
	return &Refusal{Message: reason.Words(nil), Ended: reason}
}

// Revoke ends a grant for good (G7). It returns once the Ledger has committed; the Register follows as it can, which
// nothing depends on.
func (k *Keeper) Revoke(ctx context.Context, g Grant, reason Reason, actor string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), decisionTime)
	defer cancel()
	return k.revoke(ctx, g.ID, g.Ends, reason, actor)
}

func (k *Keeper) revoke(ctx context.Context, id uuid.UUID, ends time.Time, reason Reason, actor string) error {
	if err := k.ledger.Revoke(ctx, id, reason, actor); err != nil {
		return err
	}
	k.Forget(ctx, id, ends, reason)
	return nil
}

// Forget tells the Register of a revocation that the Ledger has committed in the transaction of its cause.
func (k *Keeper) Forget(ctx context.Context, id uuid.UUID, ends time.Time, reason Reason) {
	if err := k.register.Revoke(ctx, id, reason, ends); err != nil {
		k.log.WarnContext(ctx, "the register was not told of a revocation; the ledger refuses the grant all the same",
			"grant_id", id, "reason", reason, "error", err)
	}
}

// decide asks the Register, a second time with the same nonce when an answer was lost (G8). Where no answer comes at all and the
// question may still arrive, it is taken back as soon as the Register answers again: the caller was told 503, and its
// credential is to work afterwards.
func (k *Keeper) decide(ctx context.Context, id uuid.UUID, nonce string, ask func() (Word, error)) (Word, error) {
	word, err := ask()
	if err == nil {
		return word, nil
	}
	uncertain, first := !errors.Is(err, ErrNotCommitted), err
	if word, err = ask(); err == nil {
		k.log.WarnContext(ctx, "the register was asked a second time", "grant_id", id, "error", first)
		return word, nil
	}
	if uncertain || !errors.Is(err, ErrNotCommitted) {
		k.takeBack(ctx, id, nonce)
	}
	return "", err
}

const (
	takeBackWithin = 30 * time.Second
	takeBackPause  = 100 * time.Millisecond
)

// takeBack undoes in the background, a bounded number at once and for a bounded time. What it cannot reach in time counts as
// used, as after any lost response.
func (k *Keeper) takeBack(ctx context.Context, id uuid.UUID, nonce string) {
	select {
	case k.takingBack <- struct{}{}:
	default:
		k.log.WarnContext(ctx, "too many decisions to take back: a credential will count as used", "grant_id", id)
		return
	}
	go func() {
		defer func() { <-k.takingBack }()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackWithin)
		defer cancel()
		for k.register.Undo(ctx, id, nonce) != nil {
			select {
			case <-ctx.Done():
				k.log.WarnContext(ctx, "a decision could not be taken back: its credential will count as used", "grant_id", id)
				return
			case <-time.After(takeBackPause):
			}
		}
	}()
}

const (
	commitTries = 4
	commitPause = 50 * time.Millisecond
	commitTime  = 2 * time.Second // the longest that one update takes
)

// commit repeats an idempotent update of the Ledger until its outcome is known. One that certainly did not happen is
// undone in the Register, so that the caller's credential works again after the 503. No update is begun that would be cut off
// by the end of the decision: its outcome would be unknown.
func (k *Keeper) commit(ctx context.Context, id uuid.UUID, nonce string, update func() (Fence, error)) (Fence, error) {
	var err error
	uncertain := false
	for try := range commitTries {
		var fence Fence
		if fence, err = update(); err == nil {
			return fence, nil
		}
		uncertain = uncertain || !errors.Is(err, ErrNotCommitted)
		if end, bounded := ctx.Deadline(); bounded && time.Until(end) < commitTime+commitPause<<try {
			break
		}
		time.Sleep(commitPause << try)
	}
	if !uncertain {
		if undoErr := k.register.Undo(ctx, id, nonce); undoErr != nil {
			k.log.WarnContext(ctx, "an uncommitted decision could not be undone: its credential will count as used", "grant_id", id, "error", undoErr)
		}
	}
	return Refused, err
}
