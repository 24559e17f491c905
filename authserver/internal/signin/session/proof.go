package session

import (
	"errors"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/credential"
)

// A Proof is how a user authenticated, and with what. Checking it takes time, so its result is stored only if it still
// holds at that moment: the password, passkey or account is still the user's, and the user is not disabled.
type Proof struct {
	Method       string            // Password, Passkey or OIDC
	PasswordHash credential.Secret // for Password: the hash that was verified
	PasskeyID    uuid.UUID         // for Passkey
	Issuer       string            // for OIDC
	Subject      string            // for OIDC
}

// ErrProofInvalid reports that a proof no longer holds, because what it was made with was replaced or removed since.
// Nothing was written.
var ErrProofInvalid = errors.New("the authentication method was replaced or removed")
