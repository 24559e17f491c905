package session

import (
	"errors"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/credential"
)

// A Proof is how a user showed who they are, and with what. Checking it takes time, so whatever it gives is written
// only where it still holds at that moment: the password, passkey or account is still the user's, and the user is not
// disabled.
type Proof struct {
	Method       string            // Password, Passkey or Upstream
	PasswordHash credential.Secret // of Password: the hash that was verified
	PasskeyID    uuid.UUID         // of Passkey
	Issuer       string            // of Upstream
	Subject      string            // of Upstream
}

// ErrProofInvalid says that a proof no longer holds: what it was made with was replaced or removed since. Nothing was
// written.
var ErrProofInvalid = errors.New("what proved who this is was replaced or removed since")
