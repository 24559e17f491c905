package webauthn

import (
	"github.com/go-webauthn/webauthn/protocol"
	library "github.com/go-webauthn/webauthn/webauthn"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
)

// A holder is a user with passkeys, as the library wants to see one.
type libraryUser struct {
	user workspace.User
	has  []passkey.Passkey
}

var _ library.User = libraryUser{}

// WebAuthnID is the user handle: the identifier, which says nothing about the person.
func (h libraryUser) WebAuthnID() []byte          { return h.user.ID[:] }
func (h libraryUser) WebAuthnName() string        { return h.user.Email }
func (h libraryUser) WebAuthnDisplayName() string { return h.user.Name }

func (h libraryUser) WebAuthnCredentials() []library.Credential {
	out := make([]library.Credential, len(h.has))
	for i, p := range h.has {
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
