// Package passkey answers: with which keys, that never leave their devices, may somebody sign in?
//
// A passkey is a WebAuthn credential that its device finds by itself and uses only after it has verified its user
// (resident key and user verification required). How the signatures are checked is machinery's business
// (internal/webauthn).
//
//	P1 A challenge is good for one answer, for ChallengeLife, at the browser or the sign-in that asked for it (ceremony C1 to C3).
//	P2 A passkey whose counter did not go up may have been copied: it is refused, then and from then on, and that is on record.
//	P3 A user who could not sign in without it keeps the last passkey.
//	P4 A user has AtMost passkeys.
//
// Callers: endpoint/passkeys, endpoint/again.
package passkey

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/shared/displayname"
)

const (
	// ChallengeLife is how long an answer to a challenge is waited for.
	ChallengeLife = 5 * time.Minute
	// MaxPerUser is how many passkeys a user may have.
	MaxPerUser = 20
	// MaxName is the longest name of a passkey, in characters.
	MaxName = 60
)

// A Passkey is one WebAuthn credential of a user.
type Passkey struct {
	ID             uuid.UUID
	UserID         uuid.UUID
	Name           string // that the user gave it
	CredentialID   []byte
	PublicKey      []byte // COSE_Key
	SignCount      uint32 // the highest that was seen; 0 for ever with those that do not count
	AAGUID         []byte // the model of the authenticator, as it says
	Transports     []string
	BackupEligible bool
	BackedUp       bool
	Created        time.Time
	LastUsed       *time.Time
	CopiedAt       *time.Time // P2
}

// A Use is one signature that was found good.
type Use struct {
	SignCount uint32
	BackedUp  bool
}

// A Removal is what came of removing a passkey.
type Removal int

// The ways in which a removal ends.
const (
	Removed Removal = iota
	NoSuchPasskey
	OnlyWayIn // P3
)

// A Store keeps passkeys. Its errors wrap store.ErrUnavailable.
type Store interface {
	// Passkeys lists the user's, the oldest first.
	Passkeys(ctx context.Context, user uuid.UUID) ([]Passkey, error)
	// PasskeyByCredential reads a passkey and its user. false: there is none.
	PasskeyByCredential(ctx context.Context, credentialID []byte) (Passkey, workspace.User, bool, error)
	// AddPasskey inserts a passkey with its audit event. false: the user has AtMost, or the credential is known (P4).
	AddPasskey(ctx context.Context, p Passkey, event audit.Event) (bool, error)
	// UsePasskey notes a use. Where the counter did not go up, or did not some time before, it says false and has noted
	// that the passkey may be a copy, the first time with the audit event (P2).
	UsePasskey(ctx context.Context, id uuid.UUID, use Use, copied audit.Event) (bool, error)
	// RemovePasskey deletes a passkey of the user with its audit event (P3). issuer is the deployment's upstream
	// provider, or "": an account elsewhere is no way in.
	RemovePasskey(ctx context.Context, user, id uuid.UUID, issuer string, event audit.Event) (Removal, error)
}

// ValidName says whether text can be the name of a passkey.
func ValidName(text string) bool { return displayname.Check(text, MaxName) == "" }
