// Package members serves the settings pages with the members and invitations of one workspace.
//
//	GET  /settings/members?tenant=              with asked, a redirect to the form for an invitation
//	GET  /settings/members/member?tenant=&id=   one member; with asked, filled in from the request for access
//	GET  /settings/members/invite?tenant=       the form; with asked, filled in from that user's request for access
//	POST /settings/members/invite               the members, with the link only this time
//	POST /settings/members/renew                the page, with the new link only this time
//	POST /settings/members/withdraw
//	POST /settings/members/permissions
//	POST /settings/members/remove               first what ends by it; with confirm it happens
//	POST /settings/members/second-factor        whether members need a second factor
//	POST /settings/members/leave                the same; needs no permission
//
// Package membership decides.
package members

import (
	"context"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/accessrequest"
	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/web"
)

// Section is the page's link in the navigation.
var Section = ui.Section{Name: "members", Title: "Members", Needs: perm.AccountReadMembers}

// inviteSection is the page with the form for an invitation.
var inviteSection = ui.Section{
	Name:   "members/invite",
	Title:  "Invite a person",
	Needs:  perm.AccountWriteMembers,
	Parent: Section.Name,
}

// Subsections returns the pages of the section that have no link in the navigation.
func Subsections() []ui.Section { return []ui.Section{inviteSection} }

// Store reads members and invitations; postgres.Store implements it.
type Store interface {
	ListedMembers(ctx context.Context, workspaceID uuid.UUID) ([]membership.ListedMember, error)
	WorkspaceMembers(ctx context.Context, workspaceID uuid.UUID, users []uuid.UUID) ([]membership.Member, error)
	WorkspaceMember(ctx context.Context, workspaceID, user uuid.UUID) (membership.Member, error)
	Invitations(ctx context.Context, workspaceID uuid.UUID) ([]membership.Invitation, error)
	// RequireSecondFactor returns session.ErrSecondFactor if a user without one switches it on.
	RequireSecondFactor(ctx context.Context, workspaceID uuid.UUID, required bool, event audit.Event) error
	// LastAccessRequest reads the last request of a user in the workspace, or returns nil.
	LastAccessRequest(ctx context.Context, workspaceID, user uuid.UUID) (*accessrequest.SentRequest, error)
}

// A Handler serves the pages. It is safe for concurrent use.
type Handler struct {
	*settings.Settings
	members *membership.Service
	store   Store
}

// New returns a Handler.
func New(s *settings.Settings, members *membership.Service, store Store) *Handler {
	return &Handler{s, members, store}
}

// Routes returns the routes of the pages and their forms.
func (h *Handler) Routes() settings.Routes {
	return settings.Routes{
		Section.Path():                  {"GET": h.page()},
		Section.Path() + "/member":      {"GET": h.member()},
		Section.Path() + "/invite":      {"GET": h.invitePage(), "POST": h.invite()},
		Section.Path() + "/renew":       {"POST": h.renew()},
		Section.Path() + "/withdraw":    {"POST": h.withdraw()},
		Section.Path() + "/permissions": {"POST": h.setPermissions()},
		Section.Path() + "/remove":      {"POST": h.remove()},
		Section.Path() + "/leave":       {"POST": h.leave()},

		Section.Path() + "/second-factor": {"POST": h.setSecondFactor()},
	}
}

// page serves GET /settings/members.
func (h *Handler) page() http.Handler {
	return h.Page(func(v *settings.Request) error {
		here, err := h.At(v, v.R.URL.Query().Get("tenant"), Section)
		if err != nil {
			return err
		}
		// The mails about requests for access link to this page.
		if asked, err := identity.Parse(v.R.URL.Query().Get("asked")); err == nil {
			settings.Redirect(v.W, here.Path(inviteSection)+"&asked="+asked.String())
			return nil
		}
		return h.show(v, here, http.StatusOK, func(*view) {})
	})
}

// invitationsShown is how many invitations a page shows.
const invitationsShown = 10

// show shows the current list, changed by adjust.
func (h *Handler) show(v *settings.Request, here settings.Scope, status int, adjust func(*view)) error {
	all, err := h.store.ListedMembers(v.R.Context(), here.Workspace.ID)
	if err != nil {
		return err
	}
	query := v.R.URL.Query()
	listed, list := settings.Listing[membership.ListedMember]{
		Of:   "members",
		Path: here.Path(Section),
		Matches: func(m membership.ListedMember, words string) bool {
			return settings.Contains(words, m.Name, m.Email, strings.Join(m.Permissions.Strings(), " "))
		},
	}.Select(query, all)
	members, err := h.store.WorkspaceMembers(v.R.Context(), here.Workspace.ID, membership.UserIDs(listed))
	if err != nil {
		return err
	}
	invitations, err := h.store.Invitations(v.R.Context(), here.Workspace.ID)
	if err != nil {
		return err
	}
	frame, err := h.FrameIn(v, here, Section)
	if err != nil {
		return err
	}
	page := &view{
		Frame:      frame,
		Key:        h.NewKey(v),
		Workspaces: here.Workspaces(),
		Workspace:  here.View(),
		List:       list,
		Writes:     here.Permissions.Has(perm.AccountWriteMembers),
		SecondFactor: secondFactorForm{
			Required: here.Workspace.SecondFactor,
			May:      v.Current.SecondFactor.Satisfies(),
		},
	}
	for _, m := range members {
		page.Members = append(page.Members, memberView{m, m.UserID == v.Current.User.ID})
	}
	for _, m := range all {
		if !m.SecondFactor && !m.Disabled {
			page.SecondFactor.Without++
		}
	}
	for _, i := range invitations {
		page.Invitations = append(page.Invitations, invitationView{i, i.Expired(h.Now())})
	}
	page.Invitations, page.Invited = settings.Listing[invitationView]{
		Of:        "invitations",
		Path:      here.Path(Section),
		Parameter: "invitations",
		Size:      invitationsShown,
	}.Select(query, page.Invitations)
	adjust(page)
	h.Pages.Show(v.W, v.R, status, page)
	return nil
}

// changing serves a POST by a user who may change the members of the workspace.
func (h *Handler) changing(serve func(*settings.Request, settings.Scope) error) http.Handler {
	return h.Form(Section, func(v *settings.Request) error {
		here, err := h.At(v, v.Form.Get("tenant"), Section)
		if err != nil {
			return err
		}
		if !here.Permissions.Has(perm.AccountWriteMembers) {
			ask, err := h.Ask(v, here.Membership, perm.NewSet(perm.AccountWriteMembers), "", here.Path(Section))
			if err != nil {
				return err
			}
			return h.show(v, here, http.StatusForbidden, func(page *view) {
				page.ProblemAsk = &ask
				page.Problem = "You can see the members of this workspace, but not change them. Nothing was changed."
			})
		}
		return serve(v, here)
	})
}

// actor returns the user of the request.
func actor(v *settings.Request, workspaceID uuid.UUID, held perm.Set) membership.Actor {
	return membership.Actor{
		UserID:      v.Current.User.ID,
		WorkspaceID: workspaceID,
		Permissions: held,
		RequestID:   web.RequestID(v.R.Context()),
		Authorization: audit.Authorization{
			UserID:   v.Current.User.ID,
			SignInID: v.Current.SignInID,
		},
	}
}

func actorIn(v *settings.Request, here settings.Scope) membership.Actor {
	return actor(v, here.Workspace.ID, here.Permissions)
}
