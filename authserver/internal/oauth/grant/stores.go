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

// An UpdateResult is what Postgres said to an advance.
type UpdateResult int

// Updated: the advance is committed. Overtaken: the grant was revoked meanwhile. Refused: Postgres is already further.
const (
	Refused UpdateResult = iota
	Updated
	Overtaken
)

// An Approval is the number of an approval, and the state in which it finds its grant.
type Approval struct {
	State  State     // Pending for a grant that does not exist yet; another one: the consent was used already
	Number int       // above that of every earlier approval of the grant
	Now    time.Time // Postgres's clock
}

// A Try is one exchange or rotation.
type Try struct {
	GrantID uuid.UUID
	Nonce   string   // tells a retry of our own from a repetition (G8)
	GivenUp []string // nonces of tries that were given up: Redis undoes the last decision if it was one of theirs (G10)
}

// A Step is what a try decides: the grant goes from one generation to the next.
type Step struct {
	GrantID    uuid.UUID
	Nonce      string
	Generation uint32 // of the next refresh token; 1 for an exchange
	Hash       []byte // of its random part; of a nonce where the grant has no refresh tokens
	Former     []byte // the hash before; nil for an exchange
}

// A GrantStore is the truth about grants, in Postgres. Its errors wrap store.ErrUnavailable; those of Advance and
// Activate also ErrNotCommitted where that is certain.
type GrantStore interface {
	// Facts reads, in one statement, the client without its secrets, the grant and the standing of its user. A zero
	// grant id reads the client alone. What does not exist is nil.
	Facts(ctx context.Context, clientID, grantID uuid.UUID) (Snapshot, error)
	// FactsWithSecret is Facts with, of the client's live secrets, the one with this hash.
	FactsWithSecret(ctx context.Context, clientID, grantID uuid.UUID, secretHash []byte) (Snapshot, error)
	Approvals
	// Activate moves a pending grant to generation 1, if its code has this binding: so the code's reuse can be proven
	// by Postgres alone. It is idempotent: the same step passes again. A step that was given up is refused.
	Activate(ctx context.Context, step Step, binding []byte) (UpdateResult, error)
	// Advance moves an active grant to the step's generation, from any smaller one. It is idempotent likewise.
	Advance(ctx context.Context, step Step) (UpdateResult, error)
	// GiveUp reverts a step that was answered with 503, if it was taken, and makes sure that it is not taken later
	// (G10).
	GiveUp(ctx context.Context, step Step) error
	// Revoke ends the grant, durably, with its audit event; a grant that has ended keeps its first reason.
	Revoke(ctx context.Context, id uuid.UUID, reason Reason, actor string) error
}

// Approvals are the part of a GrantStore that consent pages write. Their errors wrap ErrUnavailable.
type Approvals interface {
	// Approve numbers an approval of a grant that may not exist yet. It changes nothing of the grant.
	Approve(ctx context.Context, id uuid.UUID) (Approval, error)
	// Open inserts a pending grant, or gives the pending one of the same id a new code and what was approved with it,
	// as far as the policy of the workspace allows it at that moment; or returns ErrPolicy. Where what allowed the
	// approval has ended since it was checked, it returns audit.ErrNotAllowed. A pending grant that a later approval
	// has changed stays as it is. Open returns the grant's state.
	Open(ctx context.Context, g Grant, approval int) (State, error)
	// Deny ends a pending grant, durably, with its audit event, and returns ErrTaken where it is not pending any more.
	Deny(ctx context.Context, id uuid.UUID, actor string) error
}

// A ScriptResult is a script's answer.
type ScriptResult string

// The words of the scripts (lua/*.lua).
const (
	OK               ScriptResult = "ok"
	Missing          ScriptResult = "missing"  // Redis does not know the grant
	Ahead            ScriptResult = "ahead"    // the token is newer than what Redis knows
	Ended            ScriptResult = "ended"    // its time is over
	WrongClient      ScriptResult = "client"   // another client's
	Replay           ScriptResult = "replay"   // superseded: the grant is revoked now
	Reused           ScriptResult = "reused"   // used code: the grant is revoked now
	CodeSpent        ScriptResult = "spent"    // the code was used, and nothing more is known of it
	TooManyTries     ScriptResult = "burned"   // fifth mismatch: the grant is revoked now
	Expired          ScriptResult = "expired"  // the code's 60 seconds are over
	Replaced         ScriptResult = "replaced" // not the grant's current code or token
	WrongRedirectURI ScriptResult = "redirect"
	WrongVerifier    ScriptResult = "verifier"
	WrongResource    ScriptResult = "resource"
	Late             ScriptResult = "late"  // arrived after its deadline: nothing was changed
	AlreadyUsed      ScriptResult = "taken" // issue: the code was redeemed, or the grant has ended
)

// revokedPrefix comes before the reason where the grant was revoked already.
const revokedPrefix = "revoked:"

// RevokedResult is the word for a grant that was revoked already, for a reason.
func RevokedResult(reason Reason) ScriptResult { return ScriptResult(revokedPrefix + reason) }

// revokedReason is the reason in such a word.
func (w ScriptResult) revokedReason() (Reason, bool) {
	reason, gone := strings.CutPrefix(string(w), revokedPrefix)
	return Reason(reason), gone
}

// CodeTerms are what a code is tied to.
type CodeTerms struct {
	ClientID    uuid.UUID
	RedirectURI string
	Resource    string
	Challenge   string // of PKCE, "" for none
}

// A RotationStore decides races over grants, in Redis, one script a decision. Its errors wrap store.ErrUnavailable. A
// call with the nonce of an earlier one gets the earlier answer (G8). Where it is certain that nothing was sent, they
// also wrap ErrNotCommitted. Issue, Exchange, Rotate and Repair change nothing once the deadline of their context has
// passed by the RotationStore's clock, whenever they arrive: Issue, Exchange and Rotate answer Late then.
type RotationStore interface {
	Issue(
		ctx context.Context,
		id uuid.UUID,
		approval int,
		codeHash []byte,
		terms CodeTerms,
		ends time.Time,
	) (ScriptResult, error)
	// Withdraw takes back what Issue did for an approval that Postgres has refused: the code that it replaced counts
	// again, unless the grant was redeemed or has ended (G12).
	Withdraw(ctx context.Context, id uuid.UUID, approval int) (ScriptResult, error)
	Exchange(ctx context.Context, try Try, codeHash []byte, terms CodeTerms, refreshHash []byte) (ScriptResult, error)
	Rotate(
		ctx context.Context,
		try Try,
		old Token,
		clientID uuid.UUID,
		resource string,
		next []byte,
	) (ScriptResult, error)
	// Undo takes back what the call with this nonce decided, if nothing has happened since.
	Undo(ctx context.Context, id uuid.UUID, nonce string) error
	// Undone reports whether the decision whose hash this is was the last one that was undone: no client has its token.
	Undone(ctx context.Context, id uuid.UUID, hash []byte) (bool, error)
	Revoke(ctx context.Context, id uuid.UUID, reason Reason, ends time.Time) error
	Repair(ctx context.Context, g Grant) error
}
