package grant

import (
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
	Ending    *Ending   // nil unless a used code or refresh token ended it
	SignInID  uuid.UUID // for Open: the sign-in of the approval, which must still be valid; not stored
	Instead   []Key     // for Open: the keys of the same request in other workspaces; not stored
}

// Key returns the key of the grant.
func (g Grant) Key() Key { return Key{g.WorkspaceID, g.ID} }

// words describes in plain words why and when the grant ended.
func (g *Grant) words() string { return g.Reason.Words(g.RevokedAt) }

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
