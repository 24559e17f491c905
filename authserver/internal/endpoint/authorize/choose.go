package authorize

import (
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/identity"
)

// Choose serves POST /oauth/authorize/workspace. It accepts requests from the server's own origin only. The user has
// chosen the workspace for a client that belongs to none; the response is the consent page. No URL leads to that page,
// so a link cannot choose for the user.
func (h *Handler) Choose() http.Handler { return h.Pages.SameOrigin(http.HandlerFunc(h.choose)) }

func (h *Handler) choose(w http.ResponseWriter, r *http.Request) {
	form, refused := h.readChoice(w, r)
	if refused {
		return
	}
	choice, err := h.Tickets.OpenChoice(form.ticket, h.Now())
	user, refused := h.holder(w, r, shown{choice.SignInID, choice.UserID, string(choice.Request)}, err)
	if refused {
		return
	}
	snapshot, err := h.Grants.Snapshot(r.Context(), choice.ClientID, grant.Key{})
	if err != nil {
		h.fail(w, r, err)
		return
	}
	if snapshot.Client == nil || !h.Requests.Serves(*snapshot.Client) ||
		!snapshot.Client.MayRedirectTo(choice.RedirectURI) {
		h.Pages.ShowError(w, r, clientGone())
		return
	}
	req := choice.AuthorizationRequest(*snapshot.Client)
	approval, err := h.decided(r.Context(), user, req.Identity(user.SignInID), req.Client)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	workspaceID, err := identity.Parse(form.workspace)
	switch {
	case approval.Used():
		h.Pages.ShowError(w, r, usedAlready())
	case !form.chosen:
		if h.endPending(w, r, user, approval) {
			h.sendDenial(w, req.RedirectURI, req.State)
		}
	case err != nil:
		h.offerWorkspaces(w, r, user, req, string(choice.Request), "Choose a workspace.")
	default:
		h.offer(w, r, user, req, approval, workspaceID, string(choice.Request))
	}
}

type chosen struct {
	ticket    string
	chosen    bool
	workspace string
}

// readChoice reads the fields, each at most once. It returns true if it has refused the form and written the response.
func (h *Handler) readChoice(w http.ResponseWriter, r *http.Request) (chosen, bool) {
	if h.unreadable(w, r) {
		return chosen{}, true
	}
	answer := r.PostForm.Get("decision")
	once := len(r.PostForm["ticket"]) <= 1 && len(r.PostForm["decision"]) == 1 && len(r.PostForm["workspace"]) <= 1
	if !once || (answer != "choose" && answer != "deny") {
		h.Pages.ShowError(w, r, badForm())
		return chosen{}, true
	}
	return chosen{r.PostForm.Get("ticket"), answer == "choose", r.PostForm.Get("workspace")}, false
}

// offerWorkspaces shows the page that asks for a workspace, or why the user has none to choose. No workspace is
// preselected, even if there is only one. problem is the error of the previous submission, if any.
func (h *Handler) offerWorkspaces(
	w http.ResponseWriter,
	r *http.Request,
	user session.CurrentUser,
	req consent.Request,
	returnPath, problem string,
) {
	memberships, err := h.Members.Memberships(r.Context(), user.User.ID)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	open, closed := consent.SelectableWorkspaces(req.Client.Kind, memberships)
	asks, err := asker{h, r, user, req.Client, returnPath}.askToOpen(closed)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	if len(open) == 0 {
		m := noWorkspace(user, req.Client, closed, returnPath)
		m.Asks = asks
		h.Pages.ShowError(w, r, m)
		return
	}
	ticket, err := h.Tickets.SealChoice(consent.Choice{
		SignInID:    user.SignInID,
		UserID:      user.User.ID,
		ClientID:    req.Client.ID,
		RedirectURI: req.RedirectURI,
		State:       []byte(req.State),
		Permissions: req.Permissions,
		Resource:    req.Resource,
		Challenge:   req.Challenge,
		Request:     []byte(returnPath),
		Issued:      h.Now(),
	})
	if err != nil {
		h.fail(w, r, err)
		return
	}
	status := http.StatusOK
	if problem != "" {
		status = http.StatusBadRequest
	}
	h.Pages.Show(w, r, status, &ui.Choice{
		Frame: ui.Frame{
			Title:   req.Client.Name + " asks for access",
			Person:  person(user),
			Problem: problem,
		},
		Application: req.Client.Name,
		Domain:      req.Client.Domain(),
		Open:        listed(open),
		Closed:      listed(closed),
		Asks:        asks,
		Ticket:      ticket,
		SwitchTo:    returnPath,
	})
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
