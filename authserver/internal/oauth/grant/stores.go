package grant

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
)

// ErrNotCommitted, beside store.ErrUnavailable, says that the store certainly changed nothing.
var ErrNotCommitted = errors.New("not committed")

// A Fence is what the Ledger said to an advance.
type Fence int

// Passed: the advance is committed. Overtaken: the grant was revoked meanwhile. Refused: the Ledger is already further.
const (
	Refused Fence = iota
	Passed
	Overtaken
)

// An Approval is the number of an approval, and the state in which it finds its grant.
type Approval struct {
	State  State     // Pending for a grant that does not exist yet; another one: the consent was used already
	Number int       // above that of every earlier approval of the grant
	Now    time.Time // the Ledger's clock
}

// A Try is one exchange or rotation.
type Try struct {
	GrantID uuid.UUID
	Nonce   string   // tells a retry of our own from a repetition (G8)
	GivenUp []string // nonces of tries that were given up: the Register undoes the last decision if it was one of theirs (G10)
}

// A Step is what a try decides: the grant goes from one generation to the next.
type Step struct {
	GrantID    uuid.UUID
	Nonce      string
	Generation uint32 // of the next refresh token; 1 for an exchange
	Hash       []byte // of its random part; of a nonce where the grant has no refresh tokens
	Former     []byte // the hash before; nil for an exchange
}

// A Ledger is the truth about grants, in Postgres. Its errors wrap store.ErrUnavailable; those of Advance and Activate also
// ErrNotCommitted where that is certain.
type Ledger interface {
	// Facts reads, in one statement, the client without its secrets, the grant and the standing of its user. A zero grant id reads the
	// client alone. What does not exist is nil.
	Facts(ctx context.Context, clientID, grantID uuid.UUID) (Facts, error)
	// FactsWithSecret is Facts with, of the client's live secrets, the one with this hash.
	FactsWithSecret(ctx context.Context, clientID, grantID uuid.UUID, secretHash []byte) (Facts, error)
	Approvals
	// Activate moves a pending grant to generation 1, if its code has this binding: so the code's reuse can be proven by the Ledger
	// alone. It is idempotent: the same step passes again. A step that was given up is refused.
	Activate(ctx context.Context, step Step, binding []byte) (Fence, error)
	// Advance moves an active grant to the step's generation, from any smaller one. It is idempotent likewise.
	Advance(ctx context.Context, step Step) (Fence, error)
	// GiveUp reverts a step that was answered with 503, if it was taken, and makes sure that it is not taken later (G10).
	GiveUp(ctx context.Context, step Step) error
	// Revoke ends the grant, durably, with its audit event; a grant that has ended keeps its first reason.
	Revoke(ctx context.Context, id uuid.UUID, reason Reason, actor string) error
}

// Approvals are the part of a Ledger that consent pages write. Their errors wrap ErrUnavailable.
type Approvals interface {
	// Approve numbers an approval of a grant that may not exist yet. It changes nothing of the grant.
	Approve(ctx context.Context, id uuid.UUID) (Approval, error)
	// Open inserts a pending grant, or gives the pending one of the same id a new code and what was approved with it, as far as
	// the policy of the workspace allows it at that moment; or returns ErrPolicy. Where what allowed the approval has ended
	// since it was checked, it returns audit.ErrNotAllowed. A pending grant that a later approval has
	// changed stays as it is. Open returns the grant's state.
	Open(ctx context.Context, g Grant, approval int) (State, error)
	// Deny ends a pending grant, durably, with its audit event, and returns ErrTaken where it is not pending any more.
	Deny(ctx context.Context, id uuid.UUID, actor string) error
}

// A Word is a script's answer.
type Word string

// The words of the scripts (lua/*.lua).
const (
	OK       Word = "ok"
	Missing  Word = "missing"  // the Register does not know the grant
	Ahead    Word = "ahead"    // the token is newer than what the Register knows
	Ended    Word = "ended"    // its time is over
	Stranger Word = "client"   // another client's
	Replay   Word = "replay"   // superseded: the grant is revoked now
	Reused   Word = "reused"   // used code: the grant is revoked now
	Spent    Word = "spent"    // the code was used, and nothing more is known of it
	Burned   Word = "burned"   // fifth mismatch: the grant is revoked now
	Expired  Word = "expired"  // the code's 60 seconds are over
	Replaced Word = "replaced" // not the grant's current code or token
	WrongURI Word = "redirect"
	WrongPKC Word = "verifier"
	WrongRes Word = "resource"
	Late     Word = "late"  // arrived after its deadline: nothing was changed
	NotYours Word = "taken" // issue: the code was redeemed, or the grant has ended
)

// revokedWord comes before the reason where the grant was revoked already.
const revokedWord = "revoked:"

// Gone is the word for a grant that was revoked already, for a reason.
func Gone(reason Reason) Word { return Word(revokedWord + reason) }

// gone is the reason in such a word.
func (w Word) gone() (Reason, bool) {
	reason, gone := strings.CutPrefix(string(w), revokedWord)
	return Reason(reason), gone
}

// CodeTerms are what a code is tied to.
type CodeTerms struct {
	ClientID    uuid.UUID
	RedirectURI string
	Resource    string
	Challenge   string // of PKCE, "" for none
}

// A Register decides races over grants, in Redis, one script a decision. Its errors wrap store.ErrUnavailable. A call with
// the nonce of an earlier one gets the earlier answer (G8). Where it is certain that nothing was sent, they also wrap
// ErrNotCommitted. Issue, Exchange, Rotate and Repair change nothing once the deadline of their context has passed by the
// Register's clock, whenever they arrive: Issue, Exchange and Rotate answer Late then.
type Register interface {
	Issue(ctx context.Context, id uuid.UUID, approval int, codeHash []byte, terms CodeTerms, ends time.Time) (Word, error)
	// Withdraw takes back what Issue did for an approval that the Ledger has refused: the code that it replaced counts again,
	// unless the grant was redeemed or has ended (G12).
	Withdraw(ctx context.Context, id uuid.UUID, approval int) (Word, error)
	Exchange(ctx context.Context, try Try, codeHash []byte, terms CodeTerms, refreshHash []byte) (Word, error)
	Rotate(ctx context.Context, try Try, old Token, clientID uuid.UUID, resource string, next []byte) (Word, error)
	// Undo takes back what the call with this nonce decided, if nothing has happened since.
	Undo(ctx context.Context, id uuid.UUID, nonce string) error
	// Undone reports whether the decision whose hash this is was the last one that was undone: no client has its token.
	Undone(ctx context.Context, id uuid.UUID, hash []byte) (bool, error)
	Revoke(ctx context.Context, id uuid.UUID, reason Reason, ends time.Time) error
	Repair(ctx context.Context, g Grant) error
}
