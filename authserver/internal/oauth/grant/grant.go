package grant

import (
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/perm"
)

// A State is where a grant is in its life. Time ends a grant too; that is read off Ends.
type State string

// The states.
const (
	Pending State = "pending"
	Active  State = "active"
	Revoked State = "revoked"
)

// A Reason says why a grant ended. It is stored, shown to the user and told to the client.
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
)

// A Grant is what one consent gave to one client.
type Grant struct {
	ID          uuid.UUID // the consent ticket's id, so that a double submit is one grant
	Kind        client.Kind
	ClientID    uuid.UUID
	UserID      uuid.UUID
	WorkspaceID uuid.UUID
	Permissions perm.Set
	Resource    string
	State       State
	Generation  uint32   // of the current refresh token; 0 before the code is redeemed
	RefreshHash []byte   // of its random part
	CodeBinding []byte   // see Binding
	GivenUp     []string // nonces of steps that were answered with 503 (G10)
	Created     time.Time
	LastUsed    *time.Time
	Ends        time.Time
	// of a grant to be opened: Open counts Ends from Postgres's clock (G4); 0 leaves Ends as it is
	Life      time.Duration
	RevokedAt *time.Time
	Reason    Reason
	SignInID  uuid.UUID // for Open: the sign-in in which the user approves, which must still count; not stored
}

// Snapshot are what one read of Postgres tells before anything is decided.
type Snapshot struct {
	Now          time.Time // Postgres's clock
	Client       *client.Client
	Grant        *Grant
	UserDisabled bool
	Member       bool
	Held         perm.Set // what the user holds in the grant's workspace
	LLM          bool     // the workspace's LLM integration
}
