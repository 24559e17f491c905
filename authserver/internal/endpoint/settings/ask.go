package settings

import (
	"github.com/almonerhq/almoner/authserver/internal/account/accessrequest"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/perm"
)

// Ask returns the button "Ask an administrator" for the permissions that a member lacks. Without permissions, the
// button asks for the LLM integration. application is the name of the application that needs the access, or "". back
// is the local path of the page.
func (h *Settings) Ask(
	v *Request, m workspace.Membership, missing perm.Set, application, back string,
) (ui.Ask, error) {
	offer, err := h.Offers.Offer(v.R.Context(), accessrequest.Request{
		SignInID:       v.Current.SignInID,
		UserID:         v.Current.User.ID,
		WorkspaceID:    m.Workspace.ID,
		Permissions:    missing,
		LLMIntegration: len(missing) == 0,
		Application:    application,
		Back:           []byte(back),
		Issued:         h.Now(),
	}, m.Permissions)
	out := ui.Ask{Workspace: m.Workspace.Name, Ticket: offer.Ticket, None: offer.None}
	for _, one := range offer.People {
		out.People = append(out.People, ui.Person{Name: one.Name, Email: one.Email})
	}
	return out, err
}
