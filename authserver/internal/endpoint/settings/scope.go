package settings

import (
	"net/http"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
)

// A workspaceScope is the workspace of a request, in which the user holds account:api:access.
type workspaceScope struct {
	workspace.Membership
	all []workspace.Membership // every such workspace of the user
}

// at returns the workspace whose id is given, or the user's first one if it is "". If there is none, it writes a 403
// and returns answered.
func (h *Handler) at(v *request, workspace, section string) (workspaceScope, error) {
	memberships, err := h.Store.Memberships(v.r.Context(), v.current.User.ID)
	if err != nil {
		return workspaceScope{}, err
	}
	var here workspaceScope
	for _, m := range memberships {
		if m.Permissions.Has(perm.AccountAPIAccess) {
			here.all = append(here.all, m)
		}
	}
	wanted, malformed := identity.Parse(workspace)
	for _, m := range here.all {
		if workspace == "" || (malformed == nil && m.Workspace.ID == wanted) {
			here.Membership = m
			return here, nil
		}
	}
	return workspaceScope{}, h.noAccess(v, section, here.all)
}

func (h *Handler) noAccess(v *request, section string, others []workspace.Membership) error {
	frame, err := h.frame(v, strings.TrimPrefix(section, "/settings/"), "")
	if err != nil {
		return err
	}
	m := &ui.Message{
		Frame:   frame,
		Status:  http.StatusForbidden,
		Heading: "You cannot manage API access in this workspace",
		Text:    "This page requires a permission that you do not have:",
		List:    perm.NewSet(perm.AccountAPIAccess),
		Next:    "An administrator of the workspace can give it to you.",
		Links:   []ui.Link{{Href: "/settings/user", Text: "Back to your settings"}},
	}
	for _, other := range others {
		m.Links = append(
			m.Links,
			ui.Link{Href: section + "?tenant=" + other.Workspace.ID.String(), Text: other.Workspace.Name},
		)
	}
	h.Pages.Fault(v.w, v.r, m)
	return answered{}
}

func (p workspaceScope) path(section string) string {
	return section + "?tenant=" + p.Workspace.ID.String()
}
