package settings

import (
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
)

// A Scope is the workspace of a request, in which the user holds the permission that the page needs.
type Scope struct {
	workspace.Membership
	All   []workspace.Membership // every such workspace of the user
	Every []workspace.Membership // every workspace of the user
	Needs perm.Permission
}

// At returns the workspace with the id. If id is "", it returns the workspace that the user chose in the header of the
// page, or else the user's first one. It writes a 403 and returns ErrAnswered if there is none, or if the workspace
// requires a second factor that the sign-in lacks.
func (h *Settings) At(v *Request, id string, section ui.Section) (Scope, error) {
	memberships, err := h.Members.Memberships(v.R.Context(), v.Current.User.ID)
	if err != nil {
		return Scope{}, err
	}
	here := Scope{Needs: section.Needs, Every: memberships}
	for _, m := range memberships {
		if m.Permissions.Has(section.Needs) {
			here.All = append(here.All, m)
		}
	}
	wanted, malformed := identity.Parse(id)
	if id == "" && v.R.Method == http.MethodGet {
		if chosen := h.Sessions.Workspace(v.R.Context()); here.has(chosen) {
			id, wanted, malformed = chosen.String(), chosen, nil
		}
	}
	for _, m := range here.All {
		if id == "" || (malformed == nil && m.Workspace.ID == wanted) {
			here.Membership = m
			return here, h.checkSecondFactor(v, here, section)
		}
	}
	var lacking []workspace.Membership // the requested workspace, or all workspaces if the request names none
	for _, m := range memberships {
		if !m.Permissions.Has(section.Needs) && (id == "" || (malformed == nil && m.Workspace.ID == wanted)) {
			lacking = append(lacking, m)
		}
	}
	return Scope{}, h.noAccess(v, section, here.All, lacking)
}

func (p Scope) has(id uuid.UUID) bool {
	return slices.ContainsFunc(p.All, func(m workspace.Membership) bool { return m.Workspace.ID == id })
}

// checkSecondFactor returns ErrAnswered if the workspace requires a second factor that the sign-in lacks. It then
// writes a page with a link for using or adding one.
func (h *Settings) checkSecondFactor(v *Request, here Scope, section ui.Section) error {
	if !here.Workspace.SecondFactor || v.Current.SecondFactor.Satisfies() {
		return nil
	}
	page := here.Path(section)
	if v.R.Method == http.MethodGet {
		page = v.R.URL.RequestURI()
	}
	person := &ui.Person{Name: v.Current.User.Name, Email: v.Current.User.Email}
	var others []ui.Link
	for _, m := range here.All {
		if m.Workspace.ID != here.Workspace.ID {
			others = append(others, ui.Link{
				Href: section.Path() + "?tenant=" + m.Workspace.ID.String(),
				Text: m.Workspace.Name,
			})
		}
	}
	h.Pages.SecondFactorNeeded(v.W, v.R, ui.Frame{Person: person}, here.Workspace.Name, v.Current.SecondFactor.Has,
		page, others...)
	return ErrAnswered
}

// mostAsks is the maximum number of buttons on a page.
const mostAsks = 5

func (h *Settings) noAccess(v *Request, section ui.Section, others, lacking []workspace.Membership) error {
	frame, err := h.Frame(v, section)
	if err != nil {
		return err
	}
	frame.Title = "" // the heading is the title
	page := &ui.Message{
		Frame:   frame,
		Status:  http.StatusForbidden,
		Heading: denied(section.Needs),
		Text:    "This page requires a permission that you do not have:",
		List:    perm.NewSet(section.Needs),
		Next:    "An administrator of the workspace can give it to you.",
		Links:   []ui.Link{{Href: "/settings/user", Text: "Back to your settings"}},
	}
	for _, m := range lacking[:min(len(lacking), mostAsks)] {
		ask, err := h.Ask(v, m, perm.NewSet(section.Needs), "", "/settings/user")
		if err != nil {
			return err
		}
		page.Asks = append(page.Asks, ask)
	}
	for _, other := range others {
		page.Links = append(
			page.Links,
			ui.Link{Href: section.Path() + "?tenant=" + other.Workspace.ID.String(), Text: other.Workspace.Name},
		)
	}
	h.Pages.ShowError(v.W, v.R, page)
	return ErrAnswered
}

func denied(needed perm.Permission) string {
	if needed == perm.AccountReadMembers {
		return "You cannot see the members of this workspace"
	}
	return "You cannot manage API access in this workspace"
}

// Path returns the path of a section in the workspace.
func (p Scope) Path(section ui.Section) string {
	return section.Path() + "?tenant=" + p.Workspace.ID.String()
}

// Workspaces returns the workspaces that the user can choose on a page, with this one chosen.
func (p Scope) Workspaces() []ui.Workspace {
	return chosen(p.All, p.Workspace.ID)
}

func chosen(memberships []workspace.Membership, id uuid.UUID) []ui.Workspace {
	out := Workspaces(memberships)
	for i := range out {
		out[i].Chosen = memberships[i].Workspace.ID == id
	}
	return out
}

// View returns the workspace as a page shows it.
func (p Scope) View() ui.Workspace { return view(p.Membership) }

// Workspaces returns workspaces as a page shows them.
func Workspaces(memberships []workspace.Membership) []ui.Workspace {
	var out []ui.Workspace
	for _, m := range memberships {
		out = append(out, view(m))
	}
	return out
}

func view(m workspace.Membership) ui.Workspace {
	return ui.Workspace{
		ID:           m.Workspace.ID.String(),
		Name:         m.Workspace.Name,
		Organisation: m.Workspace.Organisation,
	}
}
