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

// At returns the workspace with the id, or the user's default workspace if id is "". A workspace whose page the user
// opens becomes the default one (contract, section 7). At writes a 403 and returns ErrAnswered if the user is not a
// member, lacks the permission, or signed in without a second factor that the workspace requires.
func (h *Settings) At(v *Request, id string, section ui.Section) (Scope, error) {
	memberships, err := h.Memberships(v)
	if err != nil {
		return Scope{}, err
	}
	here := Scope{Needs: section.Needs, Every: memberships}
	for _, m := range memberships {
		if m.Permissions.Has(section.Needs) {
			here.All = append(here.All, m)
		}
	}
	if id == "" && len(memberships) > 0 {
		id = h.defaultWorkspace(v.R, memberships).String()
	}
	wanted, malformed := identity.Parse(id)
	at := slices.IndexFunc(memberships, func(m workspace.Membership) bool { return m.Workspace.ID == wanted })
	switch {
	case malformed != nil || at < 0:
		return Scope{}, h.noMember(v, section, here)
	case !memberships[at].Permissions.Has(section.Needs):
		return Scope{}, h.noAccess(v, section, here, memberships[at])
	}
	here.Membership = memberships[at]
	v.workspace = wanted
	if v.R.Method == http.MethodGet && wanted != h.Sessions.Workspace(v.R.Context()) {
		if err := h.Sessions.ChooseWorkspace(v.W, v.R, wanted); err != nil {
			return Scope{}, err
		}
	}
	return here, h.checkSecondFactor(v, here, section)
}

// defaultWorkspace returns the workspace of the pages whose URL names none: the one that the user chose in the header
// of a page or visited last, or else the first one whose settings the user may open, or else the first one.
func (h *Settings) defaultWorkspace(r *http.Request, memberships []workspace.Membership) uuid.UUID {
	chosen := h.Sessions.Workspace(r.Context())
	for _, fits := range []func(workspace.Membership) bool{
		func(m workspace.Membership) bool { return m.Workspace.ID == chosen },
		func(m workspace.Membership) bool { return m.Permissions.Has(perm.AccountAPIAccess) },
		func(m workspace.Membership) bool { return m.Permissions.Has(perm.AccountReadMembers) },
		func(workspace.Membership) bool { return true },
	} {
		if at := slices.IndexFunc(memberships, fits); at >= 0 {
			return memberships[at].Workspace.ID
		}
	}
	return uuid.Nil
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

// noMember writes the page for a workspace that does not exist or that the user is not a member of. It does not tell
// which.
func (h *Settings) noMember(v *Request, section ui.Section, here Scope) error {
	page := &ui.Message{
		Status:  http.StatusForbidden,
		Heading: "You are not a member of this workspace",
		Text:    "The address may be wrong, or your membership may have ended.",
		Next:    "If you work in this workspace, ask one of its administrators to invite you.",
	}
	if len(here.Every) == 0 {
		page.Heading = "You are not a member of a workspace"
		page.Text = "This page is about a workspace."
		page.Next = "Ask an administrator of a workspace to invite you."
	}
	return h.refuse(v, section, here, page)
}

// noAccess writes the page for a workspace in which the user lacks the permission of the section.
func (h *Settings) noAccess(v *Request, section ui.Section, here Scope, m workspace.Membership) error {
	ask, err := h.Ask(v, m, perm.NewSet(section.Needs), "", "/settings/user")
	if err != nil {
		return err
	}
	here.Membership = m
	return h.refuse(v, section, here, &ui.Message{
		Status:  http.StatusForbidden,
		Heading: denied(section.Needs),
		Text:    "In " + m.Workspace.Name + ", you do not have the permission that this page requires:",
		List:    perm.NewSet(section.Needs),
		Next:    "An administrator of the workspace can give it to you.",
		Asks:    []ui.Ask{ask},
	})
}

// refuse writes a page in the settings, with links to the same page of the workspaces in which the user may open it.
func (h *Settings) refuse(v *Request, section ui.Section, here Scope, page *ui.Message) error {
	frame, err := h.Frame(v, section)
	if err != nil {
		return err
	}
	frame.Title = "" // the heading is the title
	if here.Workspace.ID != uuid.Nil {
		frame.WorkspaceID = here.Workspace.ID.String()
		frame.Switcher = h.switcher(v.Current, section, here.Every, here.Workspace.ID)
	}
	page.Frame = frame
	page.Links = []ui.Link{{Href: "/settings/user", Text: "Back to your settings"}}
	for _, other := range here.All {
		page.Links = append(
			page.Links,
			ui.Link{Href: section.Path() + "?tenant=" + other.Workspace.ID.String(), Text: other.Workspace.Name},
		)
	}
	h.Pages.ShowError(v.W, v.R, page)
	return ErrAnswered
}

func denied(needed perm.Permission) string {
	switch needed {
	case perm.AccountReadMembers:
		return "You cannot see the members of this workspace"
	case perm.AccountWriteMembers:
		return "You cannot manage the members of this workspace"
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
