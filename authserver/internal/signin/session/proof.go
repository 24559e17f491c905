package session

import (
	"errors"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A Proof is how a user authenticated, and with what. Checking it takes time, so its result is stored only if it still
// holds at that moment: the password, passkey or account is still the user's, and the user is not disabled.
type Proof struct {
	Method       string            // Password, Passkey or OIDC
	PasswordHash credential.Secret // for Password: the hash that was verified
	Code         credential.Secret // for Password: of an authenticator app, or a recovery code; not yet verified
	PasskeyID    uuid.UUID         // for Passkey
	Issuer       string            // for OIDC
	Subject      string            // for OIDC
}

// ErrCodeNeeded reports that the user has an authenticator app, and the proof has a password and no code. Nothing was
// written.
var ErrCodeNeeded = errors.New("a code of the authenticator app is needed")

// ErrCodeInvalid reports that the code of a proof is wrong or was used. Nothing was written.
var ErrCodeInvalid = errors.New("the code is not valid")

// ErrSecondFactor reports that the sign-in lacks a required second factor. Nothing was written.
var ErrSecondFactor = errors.New("a second factor is needed")

// ErrProofInvalid reports that a proof no longer holds, because what it was made with was replaced or removed since.
// Nothing was written.
var ErrProofInvalid = errors.New("the authentication method was replaced or removed")
