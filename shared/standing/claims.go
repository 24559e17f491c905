package standing

import (
	"github.com/almonerhq/almoner/shared/accesstoken"
	"github.com/almonerhq/almoner/shared/identity"
)

// Backs says whether the grant that this is the standing of made the access token: the token's claims are the grant's
// own, in every part.
func (s Standing) Backs(c accesstoken.Claims) bool {
	client, err := identity.OfClient(c.ClientID)
	return err == nil && s.ClientID != nil && *s.ClientID == client && s.UserID == c.Subject && s.CredentialWorkspace == c.WorkspaceID &&
		s.Resource != nil && *s.Resource == c.Audience &&
		s.CredentialID == c.GrantID
}
