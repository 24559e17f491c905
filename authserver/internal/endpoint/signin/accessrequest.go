package signin

import (
	"errors"
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
)

// askForAccess serves POST /access-requests: the button "Ask an administrator" of pages that say which access a user
// lacks. Its ticket contains the requested access and the workspace (account/membership).
func (h *Handler) askForAccess(v *visit) error {
	current, signedIn, err := h.Sessions.CurrentUser(v.r.Context())
	if err != nil {
		return err
	}
	q, err := h.Offers.Open(v.form.Get("ticket"), current.SignInID, h.Now())
	if !signedIn || err != nil {
		return h.tell(v, notAsked())
	}
	event := current.Event(v.r.Context(), audit.AccessRequested, "user:"+current.User.ID.String())
	event.WorkspaceID = &q.WorkspaceID
	event.Detail = map[string]any{
		"permissions":      q.Permissions.Strings(),
		"llm_integration":  q.LLMIntegration,
		"connector_policy": q.Policy,
	}
	outcome, err := h.Store.SendAccessRequest(v.r.Context(), q, event)
	switch {
	case errors.Is(err, audit.ErrNotAuthorized):
		return h.tell(v, notAsked())
	case err != nil:
		return err
	}
	m := asked(outcome)
	m.Person = person(current.User)
	if len(q.Back) > 0 {
		m.Links = append(m.Links, ui.Link{Href: string(q.Back), Text: "Back"})
	}
	return h.tell(v, m)
}

// asked returns the page of an outcome.
func asked(outcome membership.Outcome) *ui.Message {
	m := &ui.Message{
		Status:  http.StatusOK,
		Heading: "No administrator can be asked",
		Text:    "No other member of this workspace can give you this access by e-mail. No e-mail was sent.",
		Next:    "Ask a person in the workspace, or the person who runs this service.",
	}
	switch outcome {
	case membership.RequestSent:
		m.Heading = "We asked the administrators"
		m.Text = "They got an e-mail with your name, your address and what you need."
		m.Next = "An administrator decides. You can ask again after 24 hours."
	case membership.RequestSentBefore:
		m.Heading = "You have already asked"
		m.Text = "You asked the administrators of this workspace less than 24 hours ago. No other e-mail was sent."
		m.Next = "You can ask again a day after your last request."
	case membership.TooManyRequests:
		m.Status, m.Heading = http.StatusTooManyRequests, "Too many people have asked today"
		m.Text = "Too many people who are not members asked the administrators of this workspace. No e-mail was sent."
		m.Next = "Try again tomorrow, or ask a person in the workspace."
	case membership.AccessGiven:
		m.Heading, m.Next = "You have this access now", ""
		m.Text = "It was given to you while the page was open. No e-mail was sent."
	case membership.RequesterUnproven:
		return ui.Unproven("You cannot ask for access before that. No e-mail was sent.", true)
	case membership.NoMail:
		m.Heading, m.Text = "No e-mail was sent", "This deployment sends no e-mail."
		m.Next = "Ask an administrator of the workspace yourself."
	}
	return m
}

// notAsked returns the page for a form of another session, or one that is too old.
func notAsked() *ui.Message {
	return &ui.Message{
		Status:  http.StatusForbidden,
		Heading: "This form is out of date",
		Text:    "It was opened in another session or more than a day ago. No e-mail was sent.",
		Next:    "Go back to the page, reload it and ask again.",
		Links:   toSettings(),
	}
}
