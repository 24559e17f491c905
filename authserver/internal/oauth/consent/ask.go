// Package consent describes what a client requests, what the user can grant, and what the consent page showed when the
// user approved.
package consent

import (
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/perm"
)

// A Request is an authorization request that has passed every check of its form (contract, section 4).
type Request struct {
	Client      client.Client
	RedirectURI string // as sent, which equals the registered one byte for byte
	State       string // byte for byte
	Permissions perm.Set
	Resource    string // resource indicator of the access token
	Challenge   string // PKCE S256 challenge, or ""
}

// Identity returns the identity of the request in a sign-in.
func (r Request) Identity(signInID uuid.UUID) RequestIdentity {
	return RequestIdentity{
		SignInID:    signInID,
		ClientID:    r.Client.ID,
		RedirectURI: r.RedirectURI,
		State:       []byte(r.State),
		Challenge:   r.Challenge,
	}
}
