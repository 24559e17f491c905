package consent

import (
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/perm"
)

// A Choice is the page on which a user selects the workspace for a client that belongs to none. It holds the request,
// which has passed every check of its form, and the user that the page was shown to.
type Choice struct {
	SignInID    uuid.UUID `json:"s"`
	UserID      uuid.UUID `json:"u"`
	ClientID    uuid.UUID `json:"c"`
	RedirectURI string    `json:"r"`
	State       []byte    `json:"t"`
	Permissions perm.Set  `json:"p"` // as requested
	Resource    string    `json:"a"`
	Challenge   string    `json:"h,omitempty"`
	Request     []byte    `json:"o"` // local path of the original request, to return to
	Issued      time.Time `json:"i"`
}

// AuthorizationRequest returns the request again, with the client as it is now.
func (c Choice) AuthorizationRequest(of client.Client) Request {
	return Request{
		Client:      of.At(c.Resource),
		RedirectURI: c.RedirectURI,
		State:       string(c.State),
		Permissions: c.Permissions,
		Resource:    c.Resource,
		Challenge:   c.Challenge,
	}
}

// SelectableWorkspaces splits a user's workspaces into those that a client of this kind may be given and those that are
// closed to it.
func SelectableWorkspaces(kind client.Kind, memberships []workspace.Membership) (open, closed []workspace.Membership) {
	for _, m := range memberships {
		if !kind.AllowedBy(m.Workspace.LLMIntegration) {
			closed = append(closed, m)
			continue
		}
		open = append(open, m)
	}
	return open, closed
}
