package members

import (
	"github.com/almonerhq/almoner/authserver/internal/account/accessrequest"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
)

// An askedView is a request for access whose values a form contains.
type askedView struct {
	accessrequest.SentRequest
	NotHeld perm.Set // requested permissions that the user of the page cannot give
}

// askedBy reads the access request of the user id in the workspace. It returns nil if there is none, or if the user of
// the page cannot change members. The link in the administrators' mail contains the id.
func (h *Handler) askedBy(v *settings.Request, here settings.Scope, id string) (*askedView, error) {
	user, err := identity.Parse(id)
	if err != nil || !here.Permissions.Has(perm.AccountWriteMembers) {
		return nil, nil
	}
	asked, err := h.store.LastAccessRequest(v.R.Context(), here.Workspace.ID, user)
	if asked == nil || err != nil {
		return nil, err
	}
	return &askedView{*asked, asked.Permissions.Without(here.Permissions)}, nil
}

// fillIn fills in the invitation form for a user who asked for access.
func (page *invitePage) fillIn(asked *askedView) {
	if asked == nil {
		return
	}
	page.Asked, page.Email, page.Chosen = asked, asked.Email, asked.Permissions.Intersect(page.Held)
}

// fillIn selects the permissions that the member asked for.
func (page *memberPage) fillIn(asked *askedView) {
	if asked == nil || !page.Writes || page.Member.Permissions.HasAll(asked.Permissions) {
		return
	}
	page.Asked = asked
	page.Chosen = page.Chosen.Union(asked.Permissions.Intersect(page.Choices))
}
