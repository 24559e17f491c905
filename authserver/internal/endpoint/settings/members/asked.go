package members

import (
	"slices"

	"github.com/almonerhq/almoner/authserver/internal/account/accessrequest"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
)

// An askedView is a request for access from which a form is filled in.
type askedView struct {
	accessrequest.Asked
	NotHeld perm.Set // requested permissions that the user of the page cannot give
}

// askedBy reads the request for access of a user in the workspace, or returns nil if there is none or the user of the
// page cannot change members. The link in the administrators' mail names the user.
func (h *Handler) askedBy(v *settings.Request, here settings.Scope, id string) (*askedView, error) {
	user, err := identity.Parse(id)
	if err != nil || !here.Permissions.Has(perm.AccountWriteMembers) {
		return nil, nil
	}
	asked, err := h.store.AskedForAccess(v.R.Context(), here.Workspace.ID, user)
	if asked == nil || err != nil {
		return nil, err
	}
	return &askedView{*asked, asked.Permissions.Without(here.Permissions)}, nil
}

// fillIn fills in the form of an invitation for a user who asked for it and is not a member.
func (page *view) fillIn(asked *askedView) {
	if asked == nil || slices.ContainsFunc(page.Members, func(m memberView) bool { return m.UserID == asked.UserID }) {
		return
	}
	page.Asked = asked
	page.New = invitationForm{Open: true, Email: asked.Email, Chosen: asked.Permissions.Intersect(page.Held)}
}

// fillIn selects the permissions that the member asked for.
func (page *memberPage) fillIn(asked *askedView) {
	if asked == nil || !page.Writes || page.Member.Permissions.HasAll(asked.Permissions) {
		return
	}
	page.Asked = asked
	page.Chosen = page.Chosen.Union(asked.Permissions.Intersect(page.Choices))
}
