package authorize

import (
	"errors"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Answer serves POST /oauth/authorize. It accepts requests from the server's own origin only.
func (h *Handler) Answer() http.Handler { return h.form(h.answer) }

func (h *Handler) answer(v *visit) error {
	decision, access := v.form.Get("decision"), v.form.Get("access")
	if (decision != "approve" && decision != "deny") || (access != "" && access != "all" && access != "read") {
		return h.refuse(v, messages.BadForm)
	}
	ticket, opened := h.Tickets.Open(v.form.Get("ticket"), h.Now())
	v.approves = decision == "approve"
	// A precondition of the approval can end before the grant is stored. The checks are then repeated, and the page
	// reports what has ended.
	for range answerTries {
		if err := h.decide(v, ticket, opened, access == "read"); !errors.Is(err, errEnded) {
			return err
		}
	}
	h.Pages.Unavailable(v.w, v.r, ui.Frame{})
	return nil
}

const answerTries = 3

// errEnded means that a precondition ended between its check and the write of the grant.
var errEnded = errors.New("a precondition of the approval has ended")

// decide processes the decision once. readOnly is one of the two presets that the page may offer.
func (h *Handler) decide(v *visit, ticket consent.Ticket, opened error, readOnly bool) error {
	approval, err := h.reopen(v, ticket, opened)
	if err != nil {
		return err
	}
	next, free := approval.Next(ticket.WorkspaceID)
	least := consent.ReadOnly(v.client.Kind, ticket.Permissions)
	switch {
	case !free:
		return h.refuseUsed(v, approval)
	case readOnly && least == nil:
		return h.refuse(v, messages.BadForm)
	case v.approves:
		if readOnly {
			ticket.Permissions = least
		}
		ticket.GrantID = next
		return h.approve(v, ticket, approval)
	}
	return h.deny(v, ticket, approval)
}

// reopen reads the user and the client of a submitted page, and what the user has decided about its request. page is
// the zero value if opened, the error of opening the ticket, is not nil or ErrStale. If the page was not shown to the
// user, or the client is gone, reopen shows that and returns errAnswered.
func (h *Handler) reopen(v *visit, page consent.Ticket, opened error) (consent.Approval, error) {
	none := consent.Approval{}
	v.request = string(page.Request)
	user, signedIn, err := h.Visitors.CurrentUser(v.r.Context())
	v.user = user
	switch {
	case err != nil:
		return none, err
	case !signedIn:
		return none, h.refuse(v, reopening(v.request, messages.SignedOut))
	case opened != nil && !errors.Is(opened, consent.ErrStale),
		page.SignInID != user.SignInID || page.UserID != user.User.ID:
		m := reopening(v.request, messages.NotYourPage)
		m.Person = v.person()
		return none, h.refuse(v, m)
	case opened != nil:
		return none, h.refuse(v, reopening(v.request, messages.TooLate))
	}
	snapshot, err := h.Grants.Snapshot(v.r.Context(), page.ClientID, grant.Key{}, nil)
	if err != nil {
		return none, err
	}
	if snapshot.Client == nil || !h.Requests.Serves(*snapshot.Client) ||
		!snapshot.Client.MayRedirectTo(page.RedirectURI) {
		return none, h.refuse(v, messages.ClientGone)
	}
	v.client = snapshot.Client.At(page.Resource)
	return h.decided(v, page.RequestIdentity)
}

// approve stores a grant with the permissions that were on the page and that the user may still give. It returns
// errEnded if those changed before the grant was stored.
func (h *Handler) approve(v *visit, ticket consent.Ticket, approval consent.Approval) error {
	offer, err := h.eligible(v, ticket.WorkspaceID, ticket.Permissions)
	if err != nil {
		return err
	}
	web.RecordGrant(v.r.Context(), ticket.GrantID)
	code, err := h.Grants.Open(v.r.Context(), grant.Grant{
		ID:          ticket.GrantID,
		Kind:        v.client.Kind,
		ClientID:    v.client.ID,
		UserID:      v.user.User.ID,
		WorkspaceID: ticket.WorkspaceID,
		Permissions: offer.granted,
		Resource:    ticket.Resource,
		Life:        consent.Life(v.client, offer.in.Workspace),
		SignInID:    v.user.SignInID,
		Instead:     approval.Elsewhere(ticket.WorkspaceID),
	}, grant.CodeTerms{
		ClientID:    v.client.ID,
		RedirectURI: ticket.RedirectURI,
		Resource:    ticket.Resource,
		Challenge:   ticket.Challenge,
	})
	switch {
	case errors.Is(err, audit.ErrNotAuthorized):
		return errEnded
	case errors.Is(err, grant.ErrPolicy): // the policy became narrower after the check
		return h.refuseByPolicy(v, err, offer.in)
	case errors.Is(err, grant.ErrAlreadyUsed):
		return h.refuse(v, messages.UsedAlready)
	case err != nil:
		return err
	}
	return h.sendBack(v, ticket.RedirectURI, "code", code.Reveal(), "state", string(ticket.State))
}

// decided reads what the user has decided about the same request in this session. A client that belongs to no workspace
// may have been given another one.
func (h *Handler) decided(v *visit, request consent.RequestIdentity) (consent.Approval, error) {
	workspaces := []uuid.UUID{v.client.WorkspaceID}
	if v.client.Address != "" {
		memberships, err := h.Store.Memberships(v.r.Context(), v.user.User.ID)
		if err != nil {
			return consent.Approval{}, err
		}
		workspaces = nil
		for _, m := range memberships {
			workspaces = append(workspaces, m.Workspace.ID)
		}
	}
	grants, err := h.Store.Known(v.r.Context(), request.Keys(workspaces))
	return consent.Approval{Request: request, Workspaces: workspaces, Grants: grants}, err
}

// deny ends the approval of the request whose code is still unused, if there is one, and answers the client. It refuses
// if the code was redeemed first.
func (h *Handler) deny(v *visit, ticket consent.Ticket, approval consent.Approval) error {
	for _, approved := range approval.Pending() {
		err := h.Grants.Deny(v.r.Context(), approved, v.user.Actor())
		if errors.Is(err, grant.ErrAlreadyUsed) {
			return h.refuse(v, messages.UsedAlready)
		}
		if err != nil {
			return err
		}
	}
	h.recordStopped(v, ticket.WorkspaceID, &v.user.User.ID, connectionlog.Denied, userSaid)
	return h.sendBack(v, ticket.RedirectURI, "error", "access_denied",
		"error_description", "The user did not approve the request.", "state", string(ticket.State))
}

// Choose serves POST /oauth/authorize/workspace. It accepts requests from the server's own origin only. The user has
// chosen the workspace for a client that belongs to none; the response is the consent page. No URL leads to that page,
// so a link cannot choose for the user.
func (h *Handler) Choose() http.Handler { return h.form(h.choose) }

func (h *Handler) choose(v *visit) error {
	decision := v.form.Get("decision")
	if decision != "choose" && decision != "deny" {
		return h.refuse(v, messages.BadForm)
	}
	choice, opened := h.Choices.Open(v.form.Get("ticket"), h.Now())
	approval, err := h.reopen(v, choice, opened)
	if err != nil {
		return err
	}
	if approval.Used() {
		return h.refuseUsed(v, approval)
	}
	if decision == "deny" {
		return h.deny(v, choice, approval)
	}
	req := choice.AuthorizationRequest(v.client)
	workspaceID, err := web.ParseID(v.form.Get("workspace"))
	if err != nil {
		return h.offerWorkspaces(v, req, "Choose a workspace.")
	}
	return h.offer(v, req, approval, workspaceID)
}

// mostAsks is the maximum number of buttons "Ask an administrator" on a page.
const mostAsks = 5

// offerWorkspaces shows the page that asks for a workspace, or why the user has none to choose. No workspace is
// preselected, even if there is only one. The page has a button for the first few workspaces whose LLM integration is
// off. problem is the error of the previous submission, if any.
func (h *Handler) offerWorkspaces(v *visit, req consent.Request, problem string) error {
	memberships, err := h.Store.Memberships(v.r.Context(), v.user.User.ID)
	if err != nil {
		return err
	}
	view := &ui.Choice{
		Frame: ui.Frame{
			Title:   req.Client.Name + " asks for access",
			Person:  v.person(),
			Problem: problem,
			Return:  v.request, // to sign in as another user
		},
		Application: req.Client.Name,
		Domain:      req.Client.Domain(),
	}
	var closed []string
	for _, m := range memberships {
		shown := ui.Workspace{
			ID:           m.Workspace.ID.String(),
			Name:         m.Workspace.Name,
			Organisation: m.Workspace.Organisation,
		}
		if req.Client.Kind.AllowedBy(m.Workspace.LLMIntegration) {
			view.Open = append(view.Open, shown)
			continue
		}
		view.Closed, closed = append(view.Closed, shown), append(closed, m.Workspace.Name)
		if len(view.Asks) < mostAsks {
			ask, err := h.ask(v, m, lacking(nil, m.Permissions))
			if err != nil {
				return err
			}
			view.Asks = append(view.Asks, ask)
		}
	}
	if len(view.Open) == 0 {
		m := forbidden(v, messages.NoWorkspace, "")
		if len(closed) > 0 {
			m = forbidden(v, messages.NoneOpen, strings.Join(closed, ", "))
		}
		m.Asks = view.Asks
		return h.refuse(v, m)
	}
	if view.Ticket, err = h.Choices.Seal(h.ticketOf(v, req)); err != nil {
		return err
	}
	status := http.StatusOK
	if problem != "" {
		status = http.StatusBadRequest
	}
	h.Pages.Show(v.w, v.r, status, view)
	return nil
}

// ticketOf returns the ticket of a page about a request.
func (h *Handler) ticketOf(v *visit, req consent.Request) consent.Ticket {
	return consent.Ticket{
		RequestIdentity: req.RequestIdentity,
		UserID:          v.user.User.ID,
		Permissions:     req.Permissions,
		Resource:        req.Resource,
		Request:         []byte(v.request),
		Issued:          h.Now(),
	}
}
