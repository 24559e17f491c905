package authorize

import (
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/accessrequest"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/perm"
)

// An asker makes the buttons "Ask an administrator" of one page.
type asker struct {
	h    *Handler
	r    *http.Request
	user session.CurrentUser
	app  client.Client
	back string // local path of the authorization request
}

// ask returns the button for missing permissions, or for the LLM integration if there are none.
func (a asker) ask(in workspace.Workspace, missing, held perm.Set) (ui.Ask, error) {
	q := accessrequest.Request{Permissions: missing.Without(held), LLMIntegration: len(missing) == 0}
	return a.offer(in, q, held)
}

// offer returns the button for the access that q names.
func (a asker) offer(in workspace.Workspace, q accessrequest.Request, held perm.Set) (ui.Ask, error) {
	q.SignInID, q.UserID, q.WorkspaceID = a.user.SignInID, a.user.User.ID, in.ID
	q.Application, q.Back, q.Issued = spoken(a.app), []byte(a.back), a.h.Now()
	offer, err := a.h.Offers.Offer(a.r.Context(), q, held)
	out := ui.Ask{Workspace: in.Name, Ticket: offer.Ticket, None: offer.None, Policy: q.Policy}
	for _, m := range offer.People {
		out.People = append(out.People, ui.Person{Name: m.Name, Email: m.Email})
	}
	return out, err
}

// askForMembership adds the button to the page of a user who is not a member. Only a workspace that the registered
// client belongs to is asked: the page of a workspace that the user chose must not tell whether it exists.
func (a asker) askForMembership(m *ui.Message, workspaceID uuid.UUID, missing perm.Set) (*ui.Message, error) {
	if a.app.Address != "" || workspaceID != a.app.WorkspaceID {
		return m, nil
	}
	ask, err := a.ask(workspace.Workspace{ID: workspaceID, Name: "this workspace"}, missing, nil)
	m.Asks = []ui.Ask{ask}
	return m, err
}

// askFor adds the button to the page of a member, for the error of consent.Evaluate.
func (a asker) askFor(m *ui.Message, err error, member workspace.Membership) (*ui.Message, error) {
	var missing perm.Set
	if lack, lacking := errors.AsType[*consent.MissingPermissionsError](err); lacking {
		missing = lack.Missing
	}
	ask, err := a.ask(member.Workspace, missing, member.Permissions)
	m.Asks = []ui.Ask{ask}
	return m, err
}

// askForPolicy adds the button to the page of notAllowed, unless the member can change the policy.
func (a asker) askForPolicy(m *ui.Message, member workspace.Membership) (*ui.Message, error) {
	if member.Permissions.Has(perm.AccountAPIAccess) {
		return m, nil
	}
	ask, err := a.offer(member.Workspace, accessrequest.Request{Policy: true}, member.Permissions)
	m.Asks = []ui.Ask{ask}
	return m, err
}

// askToOpen returns a button for each workspace whose LLM integration is off, for the first few.
func (a asker) askToOpen(closed []workspace.Membership) (asks []ui.Ask, err error) {
	for _, m := range closed[:min(len(closed), mostAsks)] {
		ask, err := a.ask(m.Workspace, nil, m.Permissions)
		if err != nil {
			return nil, err
		}
		asks = append(asks, ask)
	}
	return asks, nil
}

const mostAsks = 5

// showAsking shows a page that a method of asker returned.
func (h *Handler) showAsking(w http.ResponseWriter, r *http.Request, m *ui.Message, err error) {
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.Pages.ShowError(w, r, m)
}
