// Package consent answers: what is asked of a user, what may that user give, and what was on screen when the user said
// yes?
package consent

import (
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/perm"
)

// An Request is an authorization request that has passed every check of its form (contract, section 4).
type Request struct {
	Client      client.Client
	RedirectURI string // as it was sent, which is as it is registered, byte for byte
	State       string // byte for byte
	Permissions perm.Set
	Resource    string // the resource indicator that the access token will be for
	Challenge   string // PKCE S256, "" for none
}
