package authorize

import (
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/shared/contract/identity"
)

// Choose serves POST /oauth/authorize/workspace. It accepts requests from the server's own origin only. The user has
// chosen the workspace for a client that belongs to none; the response is the consent page. No URL leads to that page,
// so a link cannot choose for the user.
func (h *Handler) Choose() http.Handler { return h.form(h.choose) }

func (h *Handler) choose(v *visit) error {
	decision := v.form.Get("decision")
	if decision != "choose" && decision != "deny" {
		return h.refuse(v, badForm())
	}
	choice, opened := h.Tickets.OpenChoice(v.form.Get("ticket"), h.Now())
	approval, err := h.reopen(v, choice, opened)
	if err != nil {
		return err
	}
	req := choice.AuthorizationRequest(v.client)
	if approval.Used() {
		return h.refuse(v, usedAlready())
	}
	if decision == "deny" {
		if err := h.endPending(v, approval); err != nil {
			return err
		}
		return h.sendDenial(v, req.RedirectURI, req.State)
	}
	workspaceID, err := identity.Parse(v.form.Get("workspace"))
	if err != nil {
		return h.offerWorkspaces(v, req, "Choose a workspace.")
	}
	return h.offer(v, req, approval, workspaceID)
}

// offerWorkspaces shows the page that asks for a workspace, or why the user has none to choose. No workspace is
// preselected, even if there is only one. problem is the error of the previous submission, if any.
func (h *Handler) offerWorkspaces(v *visit, req consent.Request, problem string) error {
	memberships, err := h.Members.Memberships(v.r.Context(), v.user.User.ID)
	if err != nil {
		return err
	}
	open, closed := consent.SelectableWorkspaces(req.Client.Kind, memberships)
	asks, err := h.askToOpen(v, closed)
	if err != nil {
		return err
	}
	if len(open) == 0 {
		m := noWorkspace(v, closed)
		m.Asks = asks
		return h.refuse(v, m)
	}
	ticket, err := h.Tickets.SealChoice(h.choiceOf(v, req))
	if err != nil {
		return err
	}
	status := http.StatusOK
	if problem != "" {
		status = http.StatusBadRequest
	}
	h.Pages.Show(v.w, v.r, status, &ui.Choice{
		Frame: ui.Frame{
			Title:   req.Client.Name + " asks for access",
			Person:  v.person(),
			Problem: problem,
		},
		Application: req.Client.Name,
		Domain:      req.Client.Domain(),
		Open:        listed(open),
		Closed:      listed(closed),
		Asks:        asks,
		Ticket:      ticket,
		SwitchTo:    v.request,
	})
	return nil
}

// choiceOf returns what a page about a request holds.
func (h *Handler) choiceOf(v *visit, req consent.Request) consent.Choice {
	return consent.Choice{
		SignInID:    v.user.SignInID,
		UserID:      v.user.User.ID,
		ClientID:    req.Client.ID,
		RedirectURI: req.RedirectURI,
		State:       []byte(req.State),
		Permissions: req.Permissions,
		Resource:    req.Resource,
		Challenge:   req.Challenge,
		Request:     []byte(v.request),
		Issued:      h.Now(),
	}
}

func listed(memberships []workspace.Membership) []ui.Workspace {
	out := make([]ui.Workspace, len(memberships))
	for i, m := range memberships {
		out[i] = ui.Workspace{
			ID:           m.Workspace.ID.String(),
			Name:         m.Workspace.Name,
			Organisation: m.Workspace.Organisation,
		}
	}
	return out
}
