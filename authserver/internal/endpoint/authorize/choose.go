package authorize

import (
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/identity"
)

// Choose serves POST /oauth/authorize/workspace, from this origin alone: the user has said which workspace a client
// that belongs to none may work in. What it may do there is the question of the next page; no address leads to that
// page, so that no link can choose for the user.
func (h *Handler) Choose() http.Handler { return h.Pages.SameOrigin(http.HandlerFunc(h.choose)) }

func (h *Handler) choose(w http.ResponseWriter, r *http.Request) {
	form, refused := h.readChoice(w, r)
	if refused {
		return
	}
	choice, err := h.Tickets.OpenChoice(form.ticket, h.Now())
	visitor, refused := h.holder(w, r, shown{choice.SignInID, choice.UserID, string(choice.Request)}, err)
	if refused {
		return
	}
	facts, err := h.Grants.Snapshot(r.Context(), choice.ClientID, uuid.Nil)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	if facts.Client == nil || !h.Requests.Serves(*facts.Client) || !facts.Client.MayRedirectTo(choice.RedirectURI) {
		h.Pages.Fault(w, r, clientGone())
		return
	}
	ask := choice.AuthorizationRequest(*facts.Client)
	workspaceID, err := identity.Parse(form.workspace)
	switch {
	case !form.chosen:
		h.sendDenial(w, ask.RedirectURI, ask.State)
	case err != nil:
		h.offerWorkspaces(w, r, visitor, ask, string(choice.Request), "Choose a workspace.")
	default:
		h.offer(w, r, visitor, ask, workspaceID, string(choice.Request))
	}
}

type chosen struct {
	ticket    string
	chosen    bool
	workspace string
}

// readChoice reads the fields, each once, or answers itself.
func (h *Handler) readChoice(w http.ResponseWriter, r *http.Request) (chosen, bool) {
	if h.unreadable(w, r) {
		return chosen{}, true
	}
	answer := r.PostForm.Get("decision")
	once := len(r.PostForm["ticket"]) <= 1 && len(r.PostForm["decision"]) == 1 && len(r.PostForm["workspace"]) <= 1
	if !once || (answer != "choose" && answer != "deny") {
		h.Pages.Fault(w, r, badForm())
		return chosen{}, true
	}
	return chosen{r.PostForm.Get("ticket"), answer == "choose", r.PostForm.Get("workspace")}, false
}

// offerWorkspaces asks which workspace the client may work in, or says why there is none. Nothing is chosen beforehand,
// not even where there is one alone. A problem is what was wrong with the answer before.
func (h *Handler) offerWorkspaces(
	w http.ResponseWriter,
	r *http.Request,
	visitor session.CurrentUser,
	ask consent.Request,
	again, problem string,
) {
	places, err := h.Members.Memberships(r.Context(), visitor.User.ID)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	open, closed := consent.SelectableWorkspaces(ask.Client.Kind, places)
	if len(open) == 0 {
		h.Pages.Fault(w, r, noWorkspace(visitor, ask.Client, closed, again))
		return
	}
	ticket, err := h.Tickets.SealChoice(consent.Choice{
		SignInID:    visitor.SignInID,
		UserID:      visitor.User.ID,
		ClientID:    ask.Client.ID,
		RedirectURI: ask.RedirectURI,
		State:       []byte(ask.State),
		Permissions: ask.Permissions,
		Resource:    ask.Resource,
		Challenge:   ask.Challenge,
		Request:     []byte(again),
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
			Title:       ask.Client.Name + " asks for access",
			Person:      person(visitor),
			Problem:     problem,
			FormTargets: []string{consent.Callback{URI: ask.RedirectURI}.FormTarget()},
		},
		Application: ask.Client.Name,
		Domain:      ask.Client.Domain(),
		Open:        listed(open),
		Closed:      listed(closed),
		Ticket:      ticket,
		SwitchTo:    again,
	})
}

func listed(places []workspace.Membership) []ui.Workspace {
	out := make([]ui.Workspace, len(places))
	for i, place := range places {
		out[i] = ui.Workspace{
			ID:           place.Workspace.ID.String(),
			Name:         place.Workspace.Name,
			Organisation: place.Workspace.Organisation,
		}
	}
	return out
}
