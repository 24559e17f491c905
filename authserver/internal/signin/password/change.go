package password

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A Change is a new password of a signed-in user.
type Change struct {
	UserID    uuid.UUID
	SignInID  uuid.UUID     // of the user's browser, which stays signed in
	Current   session.Proof // of the current password; the zero Proof if the user has none
	Hash      credential.Secret
	EndOthers bool // also sign out the user's other browsers
	Device    string
	Address   string
}

// ErrLinkInvalid reports that a link to set a password does not exist, has ended or was used. Nothing was written.
var ErrLinkInvalid = errors.New("the link to set a password is not valid")

// A Removal is the request of a user to remove the password, with the other sign-in methods of the deployment.
type Removal struct {
	UserID   uuid.UUID
	Passkeys bool   // the deployment offers passkeys
	Issuer   string // of the deployment's OpenID Connect provider, or ""
	Device   string
	Address  string
}

// ErrLastSignInMethod reports that the user has no sign-in method besides the password. Nothing was written.
var ErrLastSignInMethod = errors.New("the password is the last sign-in method")

// A Link is a valid link to set a password.
type Link struct {
	UserID       uuid.UUID
	Name         string
	Email        string
	Passkeys     bool // the user has passkeys
	Identities   bool // the user has linked accounts
	PasskeysStay bool // the link removes no passkey: a workspace of the user requires a second factor
	// TakesOver: the address was never proven to be the user's, and the reset proves it (useraccount.Takeover).
	TakesOver bool
	Expires   time.Time
}

// Removable reports whether a reset with this link can remove passkeys or linked accounts.
func (l Link) Removable() bool { return l.Identities || (l.Passkeys && !l.PasskeysStay) }

// A Reset is a new password that is set with a link.
type Reset struct {
	TokenHash    []byte
	Hash         credential.Secret
	RemoveOthers bool // also remove the user's linked accounts and, unless Link.PasskeysStay, passkeys
	// Keep are the personal access tokens and grants that do not end, unless Link.TakesOver.
	Keep    []uuid.UUID
	Device  string
	Address string
}

const tokenBytes = 32

// NewToken returns the secret of a link.
func NewToken(random io.Reader) (credential.Secret, error) {
	raw := make([]byte, tokenBytes)
	if _, err := io.ReadFull(random, raw); err != nil {
		return "", fmt.Errorf("make the secret of a link: %w", err)
	}
	return credential.Secret(base64.RawURLEncoding.EncodeToString(raw)), nil
}

// HashToken returns the hash that is stored for the secret of a link. It accepts any text.
func HashToken(token credential.Secret) []byte {
	sum := sha256.Sum256([]byte("password reset\x00" + token.Reveal()))
	return sum[:]
}
