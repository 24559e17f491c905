package grant

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

// ErrNotCommitted, together with store.ErrUnavailable, reports that the store certainly changed nothing.
var ErrNotCommitted = errors.New("not committed")

// An UpdateResult is the result of an update of Postgres.
type UpdateResult int

// Updated: the update is committed. Overtaken: the grant was revoked in the meantime. Refused: Postgres has a later
// state.
const (
	Refused UpdateResult = iota
	Updated
	Overtaken
)

// An Approval is the number of an approval, and the state of its grant.
type Approval struct {
	State  State     // Pending also for a grant that does not exist yet; otherwise the consent was used already
	Number int       // greater than the number of every earlier approval of the grant
	Now    time.Time // Postgres's clock
	// CarriesWorkspace reports whether every process can read codes and refresh tokens that contain their workspace.
	CarriesWorkspace bool
}

// A Step is one try of an exchange or a rotation, and its effect: the grant moves to the next generation.
type Step struct {
	WorkspaceID uuid.UUID
	GrantID     uuid.UUID
	Nonce       string // distinguishes a retry by this server from a replay (G8)
	Generation  uint32 // of the next refresh token; 1 for an exchange
	Hash        []byte // hash of its random part, or of a nonce if the grant has no refresh tokens
	Binding     []byte // of the code of an exchange; nil for a rotation
	Former      []byte // the previous hash; nil for an exchange
	// GivenUp are the nonces of given-up tries. Redis undoes the last decision if it was one of them (G10). A direct
	// step does not know them, and they do not affect a current token or an unused code.
	GivenUp []string
	// Began is when a direct step began, and zero for a step after a snapshot. A revocation of the grant since then is a
	// race (Overtaken).
	Began time.Time
}

// Direct reports whether the step is taken without a snapshot. Redis then returns ReadFirst instead of a refusal, and
// changes nothing.
func (s Step) Direct() bool { return !s.Began.IsZero() }

// Key returns the key of the step's grant.
func (s Step) Key() Key { return Key{s.WorkspaceID, s.GrantID} }

// An Undo says what is known of a step that is undone in Redis. In the zero value that is nothing.
type Undo struct {
	// Refused: Postgres has refused the step, and no call of its try can arrive any more. The store need not remember
	// such a step.
	Refused bool
	Former  string // what the result of the decision contained; the store restores it
}

// ManyTries stands for more tries than are recorded. Their step is never reverted.
const ManyTries = "*"

// A GrantStore is the authoritative store of grants, in Postgres. Its errors wrap store.ErrUnavailable; those of
// Advance and AdvanceDirectly also wrap ErrNotCommitted if that is certain.
type GrantStore interface {
	// Snapshot reads, in one statement, the client with its live secret that has this hash, the grant and the standing
	// of its user. A zero key reads only the client, and a nil hash no secret. What does not exist is nil.
	Snapshot(ctx context.Context, clientID uuid.UUID, key Key, secretHash []byte) (Snapshot, error)
	// WorkspaceOf returns the workspace of a grant, or ErrUnknown. Tokens of the former format do not contain it.
	WorkspaceOf(ctx context.Context, grantID uuid.UUID) (uuid.UUID, error)
	Approvals
	// Advance moves a grant to the step's generation: an active one from any smaller generation, or a pending one if its
	// code has the step's binding, so that Postgres alone can prove the code's reuse. It is idempotent: the same step
	// succeeds again, and so does the step of a repeated request, which has the same hash (G11). A step that was given
	// up is refused.
	Advance(ctx context.Context, step Step) (UpdateResult, error)
	// AdvanceDirectly is Advance with the snapshot's checks in the same statement: the grant belongs to the client and
	// the resource of terms, the client exists and has no authentication, and Blocked would return NotBlocked. It
	// refuses a step that is taken, unless this try took it, and a scope that the grant does not have. It returns the
	// grant unless it refuses.
	AdvanceDirectly(ctx context.Context, step Step, terms CodeTerms, scope perm.Set) (Snapshot, UpdateResult, error)
	// Responds reports whether Postgres responded lately. It does no I/O.
	Responds() bool
	// CancelTries removes the tries with these nonces, whose requests got a 503, from those that took the step, and
	// prevents them from committing it later. If they were all that took it, the step is reverted (G10).
	CancelTries(ctx context.Context, step Step, nonces []string) error
	// Revoke ends the grant durably, with its audit event. A grant that has ended keeps its first reason.
	// ending may be nil.
	Revoke(ctx context.Context, key Key, reason Reason, actor string, ending *Ending) error
}

// Approvals is the part of a GrantStore that consent pages use. Its errors wrap store.ErrUnavailable.
type Approvals interface {
	// Approve assigns a number to an approval of a grant that may not exist yet. It does not change the grant.
	Approve(ctx context.Context, key Key) (Approval, error)
	// Open inserts a pending grant, or gives the pending grant with the same id a new code and what was approved with
	// it, as far as the workspace's policy allows it at that moment; otherwise it returns ErrPolicy. If what allowed
	// the approval has ended since it was checked, it returns audit.ErrNotAuthorized. A pending grant that a later
	// approval has changed stays unchanged. Open ends the pending grants of g.Instead, or returns ErrAlreadyUsed if one
	// of them was redeemed. It returns the grant's state.
	Open(ctx context.Context, g Grant, approval int) (State, error)
	// Deny ends a pending grant durably, with its audit event. It returns ErrAlreadyUsed if the grant is not pending.
	Deny(ctx context.Context, key Key, actor string) error
}

// A ScriptResult is the result of a script. For a grant that was revoked already, it is "revoked:" and the reason.
type ScriptResult string

// The results of the scripts (lua/*.lua).
const (
	OK               ScriptResult = "ok"
	Missing          ScriptResult = "missing"  // Redis does not know the grant
	Ahead            ScriptResult = "ahead"    // the token is newer than what Redis knows
	Ended            ScriptResult = "ended"    // the grant has ended
	WrongClient      ScriptResult = "client"   // the code or token belongs to another client
	Replay           ScriptResult = "replay"   // superseded: the grant is revoked now
	Reused           ScriptResult = "reused"   // used code: the grant is revoked now
	CodeSpent        ScriptResult = "spent"    // the code was used, and nothing else is known
	TooManyTries     ScriptResult = "burned"   // fifth mismatch: the grant is revoked now
	Expired          ScriptResult = "expired"  // the code's 60 seconds are over
	Replaced         ScriptResult = "replaced" // not the grant's current code or token
	WrongRedirectURI ScriptResult = "redirect"
	WrongVerifier    ScriptResult = "verifier"
	WrongResource    ScriptResult = "resource"
	Late             ScriptResult = "late"       // arrived after its deadline: nothing was changed
	Again            ScriptResult = "again"      // repeats the request of the last decision (G11)
	ReadFirst        ScriptResult = "read_first" // a direct try that needs a snapshot
	Undone           ScriptResult = "undone"     // no client has the result of the step in Postgres (G10)
	Superseded       ScriptResult = "superseded" // used before by another request
	AlreadyUsed      ScriptResult = "taken"      // issue: the code was redeemed, or the grant has ended
	NotHeld          ScriptResult = "overtaken"  // undo: the try does not hold the active grant's last decision
)

// decided reports whether the result is OK. former is what a direct rotation has replaced besides the token: it allows
// the former request to be repeated (G11).
func (s ScriptResult) decided() (former string, ok bool) {
	if s == OK {
		return "", true
	}
	return strings.CutPrefix(string(s), string(OK)+":")
}

// again returns the index of the successor that is stored, among the given number of successors, and whether the result
// is Again.
func (s ScriptResult) again(successors int) (place int, repeats bool) {
	if s == Again {
		return 0, true
	}
	number, found := strings.CutPrefix(string(s), string(Again)+":")
	place, err := strconv.Atoi(number)
	return place - 1, found && err == nil && place >= 1 && place <= successors
}

// CodeTerms are the values that a code is bound to.
type CodeTerms struct {
	ClientID    uuid.UUID
	RedirectURI string
	Resource    string
	Challenge   string // PKCE challenge, or ""
}

// A RotationStore decides races over grants in Redis, with one script per decision. Its errors wrap
// store.ErrUnavailable, and ErrNotCommitted if certainly nothing was sent. A call with the nonce of an earlier call
// gets the same result (G8). Issue, Decide, Superseded and Repair change nothing after the deadline of their
// context by Redis's clock, whenever they arrive; all but Repair then return Late.
type RotationStore interface {
	// Responds reports whether the server of this grant responded to the last call. It does no I/O.
	Responds(ctx context.Context, id uuid.UUID) bool
	Issue(
		ctx context.Context, id uuid.UUID, approval int, codeHash []byte, terms CodeTerms, ends time.Time,
	) (ScriptResult, error)
	// Withdraw undoes Issue for an approval that Postgres has refused: the code that it replaced is valid again, unless
	// the grant was redeemed or has ended (G12).
	Withdraw(ctx context.Context, id uuid.UUID, approval int) (ScriptResult, error)
	// Decide runs the script of a code or of a refresh token, which stores the first of the hashes. A direct step only
	// replaces a current token, or redeems an unused code; otherwise it changes nothing and returns ReadFirst. A try that
	// was undone returns Late. If one of the hashes is stored already and was for less than 60 s, the request repeats the
	// one that stored it.
	Decide(ctx context.Context, step Step, r Request, next [][]byte) (ScriptResult, error)
	// Undo undoes the decision of the call with this nonce if nothing has happened since. A decision that other calls
	// repeat stays. overtaken reports that Postgres has refused the step, the grant is active, and the step does not
	// hold the last decision: there is a later one.
	Undo(ctx context.Context, id uuid.UUID, nonce string, how Undo) (overtaken bool, err error)
	// Superseded returns Again if the request that would store the hash of step repeats the one of the last decision,
	// Undone if every try that took the grant of Postgres to its generation was undone, and otherwise Superseded. With a
	// nonce, the step takes part in the last decision.
	Superseded(ctx context.Context, step Step, known Grant) (ScriptResult, error)
	Revoke(ctx context.Context, id uuid.UUID, reason Reason, ends time.Time) error
	Repair(ctx context.Context, g Grant) error
}
