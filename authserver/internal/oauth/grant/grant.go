// Package grant stores and advances OAuth grants.
//
// A consent creates one grant: pending while its code is unused, active once the code was redeemed, and finally
// revoked. Two stores hold it. Redis (RotationStore) decides races: each decision is one script on one key. Postgres
// (GrantStore) is authoritative: nothing succeeds against what it has committed, even if Redis has lost data. Service
// updates the two in the only order that preserves the invariants:
//
//	G1 A code is redeemed at most once. A second redemption that is otherwise valid revokes the grant.
//	G2 A grant has one current refresh token; at most one success per generation.
//	G3 Any authentic refresh token of a smaller generation revokes the grant, at any time. Forged, cut or
//	   foreign tokens revoke nothing.
//	G4 Nothing succeeds at or after the grant's end, and no access token outlives it. The stores' clocks decide.
//	G5 Confidential grants have no refresh token.
//	G6 Only hashes of codes and tokens are stored.
//	G7 Revoked is final.
//	G8 A retry by this server (after a lost reply) is no replay: each call carries a nonce.
//	G9 A response reports a revocation only after Postgres has committed it.
//	G10 A client that got a 503 can try again: a decision that was given up changes nothing later, and what it
//	   has already changed is undone before the grant's next decision.
//	G11 A sender that repeats its request gets the same refresh token, and no other sender does. This token is
//	   derived from the presented credential, the grant and the sender's proof, and is not stored. A request can be
//	   repeated within 60 s and before the token is used.
//	G12 A grant has the permissions of the approval whose code was redeemed. An approval that is refused has
//	   changed nothing.
//
// A request of a public client with a current token or an unused code is decided directly: one script, then one
// statement that takes the step only if the client, the user and the workspace allow it. All other requests read a
// snapshot of Postgres first, which gives the reason for a refusal.
//
// One case loses a token. If Postgres refuses a direct step, for example because LLM integration is off, Service undoes
// the step in Redis. If the process crashes between the two, the step stays in Redis: the client has no successor, and
// its next request with the same token is treated as a replay unless it repeats the request within 60 s with the same
// proof (G11). The user must connect again. A crash after a commit and before the response has the same result.
//
// Callers: engine (exchange), endpoint/protocol/authorize (open), endpoint/protocol/token and endpoint/settings
// (revoke).
package grant

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A State is the state of a grant. A grant also ends with time: see Ends.
type State string

// The states.
const (
	Pending State = "pending"
	Active  State = "active"
	Revoked State = "revoked"
)

// A Reason says why a grant ended. It is stored and shown to the user and the client.
type Reason string

// The reasons.
const (
	Replayed       Reason = "refresh_token_replayed"
	CodeReused     Reason = "code_reused"
	CodeGuessed    Reason = "code_guessed" // five wrong attempts at one code
	ByUser         Reason = "disconnected_by_user"
	ByClient       Reason = "revoked_by_client"
	ByAdmin        Reason = "revoked_by_administrator"
	MembershipOver Reason = "membership_ended"
	ClientDeleted  Reason = "client_deleted"
	ByPolicy       Reason = "connector_policy"
	AddressProven  Reason = "address_proven" // another person may have created the account (useraccount.Takeover)
)

// A Key identifies a grant by its workspace and its id. Every statement about a grant names both, so that a distributed
// Postgres sends it to one node.
type Key struct{ WorkspaceID, ID uuid.UUID }

// A Grant is what a user consented to for one client.
type Grant struct {
	ID          uuid.UUID // derived from the request, so that a double submit creates one grant
	Kind        client.Kind
	ClientID    uuid.UUID
	UserID      uuid.UUID
	WorkspaceID uuid.UUID
	Permissions perm.Set
	Resource    string
	State       State
	Generation  uint32   // of the current refresh token; 0 before the code is redeemed
	RefreshHash []byte   // hash of its random part
	CodeBinding []byte   // see Binding
	GivenUp     []string // nonces of steps whose requests got a 503 (G10)
	TakenBy     []string // nonces of the tries that took the step to the current generation; ManyTries for many
	Created     time.Time
	LastUsed    *time.Time
	Renewed     *time.Time // when the current refresh token was issued
	Ends        time.Time
	// Life is used only by Open, which computes Ends from it by Postgres's clock (G4); 0 leaves Ends unchanged.
	Life      time.Duration
	RevokedAt *time.Time
	Reason    Reason
	Reuse     *Reuse    // nil unless a used code or refresh token ended it
	SignInID  uuid.UUID // for Open: the sign-in of the approval, which must still be valid; not stored
	Instead   []Key     // for Open: the keys of the same request in other workspaces; not stored
}

// Key returns the key of the grant.
func (g Grant) Key() Key { return Key{g.WorkspaceID, g.ID} }

// A Snapshot is one consistent read of Postgres, made before a decision.
type Snapshot struct {
	Now          time.Time // Postgres's clock
	Client       *client.Client
	Grant        *Grant
	UserDisabled bool
	Member       bool
	Held         perm.Set // permissions of the user in the grant's workspace
	LLMEnabled   bool     // the workspace's LLM integration is on
	KeyIDs       []string // of the signing keys that are not removed
}

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
	// Began is when a direct step began, and zero for a step after a snapshot. A revocation of the grant since then is
	// a race (Overtaken).
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
	NotHeld          ScriptResult = "overtaken"  // undo: the last decision is another try's; not UpdateResult Overtaken
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
