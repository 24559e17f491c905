package webauthn

import (
	"github.com/go-webauthn/webauthn/protocol"
	library "github.com/go-webauthn/webauthn/webauthn"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
)

// libraryUser adapts a user with passkeys to the library.
type libraryUser struct {
	user workspace.User
	has  []passkey.Passkey
}

var _ library.User = libraryUser{}

// WebAuthnID returns the user handle: the identifier, which reveals nothing about the user.
func (l libraryUser) WebAuthnID() []byte          { return l.user.ID[:] }
func (l libraryUser) WebAuthnName() string        { return l.user.Email }
func (l libraryUser) WebAuthnDisplayName() string { return l.user.Name }

func (l libraryUser) WebAuthnCredentials() []library.Credential {
	out := make([]library.Credential, len(l.has))
	for i, p := range l.has {
		out[i] = library.Credential{
			ID:            p.CredentialID,
			PublicKey:     p.PublicKey,
			Flags:         library.CredentialFlags{BackupEligible: p.BackupEligible, BackupState: p.BackedUp},
			Authenticator: library.Authenticator{AAGUID: p.AAGUID, SignCount: p.SignCount},
		}
		for _, transport := range p.Transports {
			out[i].Transport = append(out[i].Transport, protocol.AuthenticatorTransport(transport))
		}
	}
	return out
}
