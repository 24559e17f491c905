package grant

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
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
