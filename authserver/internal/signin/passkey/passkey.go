// Package passkey defines the passkeys of users.
//
// A passkey is a WebAuthn credential that its device finds without a user name and uses only after it has verified its
// user (resident key and user verification required). Package webauthn checks the signatures.
//
//	P1 A challenge is valid for one response, for ChallengeLife, at the browser or the sign-in that
//	   requested it (loginstate C1 to C3).
//	P2 A passkey whose counter did not increase may have been copied: it is refused from then on, and the
//	   audit log records it.
//	P3 A user who could not sign in without it keeps the last passkey.
//	P4 A user has at most MaxPerUser passkeys.
//
// Caller: endpoint/signin.
package passkey

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
)

const (
	// ChallengeLife is how long a challenge may be answered.
	ChallengeLife = 5 * time.Minute
	// MaxPerUser is the maximum number of passkeys of a user.
	MaxPerUser = 20
	// MaxName is the maximum length of a passkey's name, in characters.
	MaxName = 60
)

// A Passkey is one WebAuthn credential of a user.
type Passkey struct {
	ID             uuid.UUID
	UserID         uuid.UUID
	Name           string // given by the user
	CredentialID   []byte
	PublicKey      []byte // COSE_Key
	SignCount      uint32 // the highest value seen; always 0 for authenticators that do not count
	AAGUID         []byte // the model of the authenticator, as it reports it
	Transports     []string
	BackupEligible bool
	BackedUp       bool
	Created        time.Time
	LastUsed       *time.Time
	CopiedAt       *time.Time // when a copy was suspected (P2)
}

// A Use is one valid signature.
type Use struct {
	SignCount uint32
	BackedUp  bool
}

// A Removal is the result of removing a passkey.
type Removal int

// The results of a removal.
const (
	Removed Removal = iota
	NoSuchPasskey
	OnlyWayIn // P3
)

// A Store stores passkeys. Its errors wrap store.ErrUnavailable.
type Store interface {
	// Passkeys returns the user's passkeys, oldest first.
	Passkeys(ctx context.Context, user uuid.UUID) ([]Passkey, error)
	// PasskeyByCredential returns a passkey and its user, and false if there is none.
	PasskeyByCredential(ctx context.Context, credentialID []byte) (Passkey, workspace.User, bool, error)
	// AddPasskey inserts a passkey with its audit event. It returns false if the user has MaxPerUser passkeys or the
	// credential is known (P4).
	AddPasskey(ctx context.Context, p Passkey, event audit.Event) (bool, error)
	// UsePasskey records a use. If the counter did not increase, now or before, it returns false and records that the
	// passkey may be a copy, the first time with the audit event (P2).
	UsePasskey(ctx context.Context, id uuid.UUID, use Use, copied audit.Event) (bool, error)
	// RemovePasskey deletes a passkey of the user with its audit event (P3). issuer is the deployment's OpenID Connect
	// provider, or "": an account at another provider does not count as a way to sign in.
	RemovePasskey(ctx context.Context, user, id uuid.UUID, issuer string, event audit.Event) (Removal, error)
}
