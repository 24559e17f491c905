package consent

import (
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/perm"
)

// A Choice is what a user is asked before anything else by a client that belongs to no workspace: which one may it work
// in? It is the request, which has passed every check of its form, and whose screen it was on.
type Choice struct {
	SignInID    uuid.UUID `json:"s"`
	UserID      uuid.UUID `json:"u"`
	ClientID    uuid.UUID `json:"c"`
	RedirectURI string    `json:"r"`
	State       []byte    `json:"t"`
	Permissions perm.Set  `json:"p"` // those that were asked for
	Resource    string    `json:"a"`
	Challenge   string    `json:"h,omitempty"`
	Request     []byte    `json:"o"` // the local path of the very request, to come back to
	Issued      time.Time `json:"i"`
}

// AuthorizationRequest is the request again, of the client as it is now.
func (c Choice) AuthorizationRequest(of client.Client) Request {
	return Request{
		Client: of.At(
			c.Resource,
		),
		RedirectURI: c.RedirectURI,
		State:       string(c.State),
		Permissions: c.Permissions,
		Resource:    c.Resource,
		Challenge:   c.Challenge,
	}
}

// SelectableWorkspaces splits a user's workspaces into those that a kind of client may be given and those that are
// closed to it.
func SelectableWorkspaces(kind client.Kind, places []workspace.Membership) (open, closed []workspace.Membership) {
	for _, place := range places {
		if kind.Traits().NeedsLLM && !place.Workspace.LLMIntegration {
			closed = append(closed, place)
			continue
		}
		open = append(open, place)
	}
	return open, closed
}
