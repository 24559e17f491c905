package standing

import (
	"github.com/almonerhq/almoner/shared/accesstoken"
	"github.com/almonerhq/almoner/shared/identity"
)

// Backs reports whether the access token was issued for the grant of this standing: all its claims match the
// grant.
func (s Standing) Backs(c accesstoken.Claims) bool {
	client, err := identity.OfClient(c.ClientID)
	return err == nil && s.ClientID != nil && *s.ClientID == client && s.UserID == c.Subject &&
		s.CredentialWorkspace == c.WorkspaceID &&
		s.Resource != nil && *s.Resource == c.Audience &&
		s.CredentialID == c.GrantID
}
