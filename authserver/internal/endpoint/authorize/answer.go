package authorize

import (
	"context"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/web"
)

const maxForm = 64 << 10

// Answer serves POST /oauth/authorize. It accepts requests from the server's own origin only.
func (h *Handler) Answer() http.Handler { return h.Pages.SameOrigin(http.HandlerFunc(h.answer)) }

func (h *Handler) answer(w http.ResponseWriter, r *http.Request) {
	form, refused := h.readForm(w, r)
	if refused {
		return
	}
	ticket, err := h.Tickets.Open(form.ticket, h.Now())
	// A precondition of the approval can end before the grant is stored. The checks are then repeated, and the page
	// reports what has ended.
	for range answerTries {
		if h.answered(w, r, form, ticket, err) {
			return
		}
	}
	h.Pages.Unavailable(w, r)
}

const answerTries = 3

// answered processes the decision once. It returns false, with no response written, if a precondition ended between its
// checks and the write of the grant.
func (h *Handler) answered(
	w http.ResponseWriter,
	r *http.Request,
	form decision,
	ticket consent.Ticket,
	opened error,
) bool {
	user, refused := h.holder(w, r, shown{ticket.SignInID, ticket.UserID, string(ticket.Request)}, opened)
	if refused {
		return true
	}
	snapshot, err := h.Grants.Snapshot(r.Context(), ticket.ClientID, grant.Key{})
	if err != nil {
		h.fail(w, r, err)
		return true
	}
	if snapshot.Client == nil || !h.Requests.Serves(*snapshot.Client) ||
		!snapshot.Client.MayRedirectTo(ticket.RedirectURI) {
		h.Pages.ShowError(w, r, clientGone())
		return true
	}
	approval, err := h.decided(r.Context(), user, ticket.Identity(), *snapshot.Client)
	if err != nil {
		h.fail(w, r, err)
		return true
	}
	next, free := approval.Next(ticket.WorkspaceID)
	switch {
	case !free:
		h.Pages.ShowError(w, r, usedAlready())
	case form.readOnly && consent.ReadOnly(snapshot.Client.Kind, ticket.Permissions) == nil:
		h.Pages.ShowError(w, r, badForm())
	case form.approved:
		if form.readOnly {
			ticket.Permissions = consent.ReadOnly(snapshot.Client.Kind, ticket.Permissions)
		}
		ticket.GrantID = next
		return h.approve(w, r, user, ticket, approval, *snapshot.Client)
	case h.endPending(w, r, user, approval):
		h.recordStopped(r, *snapshot.Client, ticket.WorkspaceID, &user.User.ID, connectionlog.Denied, userSaid)
		h.sendDenial(w, ticket.RedirectURI, string(ticket.State))
	}
	return true
}

// shown is the sign-in and user that a page was shown to, and its authorization request. It is the zero value if the
// ticket is not valid.
type shown struct {
	signIn, user uuid.UUID
	request      string
}

// holder returns the current user if the submitted page was shown to that user, and otherwise writes the response. err
// is the error of opening the ticket.
func (h *Handler) holder(w http.ResponseWriter, r *http.Request, to shown, err error) (session.CurrentUser, bool) {
	user, signedIn, failure := h.Visitors.CurrentUser(r.Context())
	switch {
	case failure != nil:
		h.fail(w, r, failure)
	case !signedIn:
		h.Pages.ShowError(w, r, signedOut(to.request))
	case (err != nil && !errors.Is(err, consent.ErrStale)) || to.signIn != user.SignInID || to.user != user.User.ID:
		h.Pages.ShowError(w, r, notYourPage(user, to.request))
	case err != nil:
		h.Pages.ShowError(w, r, tooLate(to.request))
	default:
		return user, false
	}
	return session.CurrentUser{}, true
}

type decision struct {
	ticket   string
	approved bool
	readOnly bool // one of the two presets that the page may offer
}

// readForm reads the fields, each at most once. It returns true if it has refused the form and written the response.
func (h *Handler) readForm(w http.ResponseWriter, r *http.Request) (decision, bool) {
	if h.unreadable(w, r) {
		return decision{}, true
	}
	once := len(r.PostForm["ticket"]) <= 1 && len(r.PostForm["decision"]) == 1 && len(r.PostForm["access"]) <= 1
	answer, access := r.PostForm.Get("decision"), r.PostForm.Get("access")
	if !once || (answer != "approve" && answer != "deny") || (access != "" && access != "all" && access != "read") {
		h.Pages.ShowError(w, r, badForm())
		return decision{}, true
	}
	return decision{r.PostForm.Get("ticket"), answer == "approve", access == "read"}, false
}

// unreadable reports whether the form cannot be read. If so, it has written the response.
func (h *Handler) unreadable(w http.ResponseWriter, r *http.Request) bool {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	err := r.ParseForm()
	if err == nil {
		return false
	}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		h.Pages.TooLarge(w, r)
	} else {
		h.Pages.ShowError(w, r, badForm())
	}
	return true
}

// approve stores a grant with the permissions that were on the page and that the user may still give. It returns false,
// with no response written, if those changed before the grant was stored.
func (h *Handler) approve(
	w http.ResponseWriter,
	r *http.Request,
	user session.CurrentUser,
	ticket consent.Ticket,
	approval consent.Approval,
	c client.Client,
) bool {
	membership, member, err := h.Members.Membership(r.Context(), user.User.ID, ticket.WorkspaceID)
	if err != nil {
		h.fail(w, r, err)
		return true
	}
	if !member {
		m, err := asker{h, r, user, c, string(ticket.Request)}.
			askForMembership(notMember(user, c, ""), ticket.WorkspaceID, ticket.Permissions)
		h.showAsking(w, r, m, err)
		return true
	}
	if membership.Workspace.SecondFactor && !user.SecondFactor.Satisfies() {
		h.recordStopped(r, c, ticket.WorkspaceID, &user.User.ID, connectionlog.Refused, noSecondFactor)
		h.needSecondFactor(w, r, user, membership.Workspace, string(ticket.Request))
		return true
	}
	c = c.At(ticket.Resource)
	granted, _, err := consent.Evaluate(c, ticket.Permissions.Intersect(c.Required), membership)
	if err != nil {
		h.recordStopped(r, c, ticket.WorkspaceID, &user.User.ID, connectionlog.Refused, stoppedWords(err))
		m, err := asker{h, r, user, c, string(ticket.Request)}.
			askFor(cannotGive(err, user, c, membership.Workspace, ""), err, membership)
		h.showAsking(w, r, m, err)
		return true
	}
	granted, _, err = consent.ApplyPolicy(c, granted, membership.Workspace)
	if err != nil {
		h.recordStopped(r, c, ticket.WorkspaceID, &user.User.ID, connectionlog.Refused, stoppedWords(err))
		m, err := asker{h, r, user, c, string(ticket.Request)}.
			askForPolicy(notAllowed(err, user, c, membership, ""), membership)
		h.showAsking(w, r, m, err)
		return true
	}
	web.RecordGrant(r.Context(), ticket.GrantID)
	code, err := h.Grants.Open(r.Context(), grant.Grant{
		ID:          ticket.GrantID,
		Kind:        c.Kind,
		ClientID:    c.ID,
		UserID:      user.User.ID,
		WorkspaceID: ticket.WorkspaceID,
		Permissions: granted,
		Resource:    ticket.Resource,
		Life:        consent.Life(c, membership.Workspace),
		SignInID:    user.SignInID,
		Instead:     approval.Elsewhere(ticket.WorkspaceID),
	}, grant.CodeTerms{
		ClientID:    c.ID,
		RedirectURI: ticket.RedirectURI,
		Resource:    ticket.Resource,
		Challenge:   ticket.Challenge,
	})
	if errors.Is(err, audit.ErrNotAuthorized) {
		return false
	}
	if errors.Is(err, grant.ErrPolicy) { // the policy became narrower after the check
		h.recordStopped(r, c, ticket.WorkspaceID, &user.User.ID, connectionlog.Refused, stoppedWords(err))
		m, err := asker{h, r, user, c, string(ticket.Request)}.
			askForPolicy(notAllowed(err, user, c, membership, ""), membership)
		h.showAsking(w, r, m, err)
		return true
	}
	if errors.Is(err, grant.ErrAlreadyUsed) {
		h.Pages.ShowError(w, r, usedAlready())
		return true
	}
	if err != nil {
		h.fail(w, r, err)
		return true
	}
	sendBack(
		w,
		consent.Callback{
			URI: ticket.RedirectURI,
		}.With("code", code.Reveal(), "state", string(ticket.State), "iss", h.Issuer),
	)
	return true
}

// decided reads what the user has decided about the same request in this session. A client that belongs to no workspace
// may have been given another one.
func (h *Handler) decided(
	ctx context.Context, user session.CurrentUser, request consent.RequestIdentity, c client.Client,
) (consent.Approval, error) {
	workspaces := []uuid.UUID{c.WorkspaceID}
	if c.Address != "" {
		memberships, err := h.Members.Memberships(ctx, user.User.ID)
		if err != nil {
			return consent.Approval{}, err
		}
		workspaces = nil
		for _, m := range memberships {
			workspaces = append(workspaces, m.Workspace.ID)
		}
	}
	grants, err := h.Grants.Known(ctx, request.Keys(workspaces))
	return consent.Approval{Request: request, Workspaces: workspaces, Grants: grants}, err
}

// endPending ends the approval of the request whose code is still unused, if there is one. It returns false if the code
// was redeemed first or the store fails; then it has written the response.
func (h *Handler) endPending(
	w http.ResponseWriter, r *http.Request, user session.CurrentUser, approval consent.Approval,
) bool {
	for _, approved := range approval.Pending() {
		err := h.Grants.Deny(r.Context(), approved, user.Actor())
		if errors.Is(err, grant.ErrAlreadyUsed) {
			h.Pages.ShowError(w, r, usedAlready())
			return false
		}
		if err != nil {
			h.fail(w, r, err)
			return false
		}
	}
	return true
}

func (h *Handler) sendDenial(w http.ResponseWriter, redirectURI, state string) {
	sendBack(w, consent.Callback{URI: redirectURI}.With("error", "access_denied",
		"error_description", "The user did not approve the request.", "state", state, "iss", h.Issuer))
}
