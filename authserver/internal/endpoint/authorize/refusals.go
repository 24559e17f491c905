package authorize

import (
	"errors"
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/client"
	"github.com/almonerhq/almoner/authserver/internal/consent"
	"github.com/almonerhq/almoner/authserver/internal/session"
	"github.com/almonerhq/almoner/authserver/internal/ui"
	"github.com/almonerhq/almoner/authserver/internal/workspace"
)

const startAgain = "Go back to the application and start again from there."

func badRequest(why string) *ui.Message {
	return &ui.Message{
		Status: http.StatusBadRequest, Heading: "This request cannot be used", Text: why,
		Next: "Go back to the application and try again. If it happens again, tell the people who make the application.",
	}
}

func notMember(visitor session.Visitor, application, again string) *ui.Message {
	return &ui.Message{
		Frame: ui.Frame{Person: person(visitor)}, Status: http.StatusForbidden,
		Heading: "You are not a member of this workspace",
		Text:    application + " belongs to a workspace that you are not a member of, so you cannot give it access.",
		Next:    "If you have another account, sign in with that one. Otherwise ask an administrator of the workspace to add you.",
		Switch:  again,
	}
}

// cannotGive says why a member cannot give a client what it asks for: err is one of consent.Weigh.
func cannotGive(err error, visitor session.Visitor, c client.Client, in workspace.Tenant, again string) *ui.Message {
	m := &ui.Message{Frame: ui.Frame{Person: person(visitor)}, Status: http.StatusForbidden, Switch: again}
	lack, lacking := errors.AsType[*consent.LackError](err)
	if !lacking {
		m.Heading = "Connectors are switched off in " + in.Name
		m.Text = c.Name + " is a connector, and this workspace does not let connectors act in it."
		m.Next = "An administrator of " + in.Name + " can switch the LLM integration on. After that, connect " + c.Name + " again."
		return m
	}
	m.Heading = "You cannot give " + c.Name + " what it needs"
	m.Text = "It asks for permissions that you do not hold in " + in.Name + ":"
	m.List = lack.Missing
	m.Next = "An administrator of " + in.Name + " can give them to you. After that, connect " + c.Name + " again."
	return m
}

func notYourPage(visitor *session.Visitor) *ui.Message {
	m := &ui.Message{
		Status: http.StatusForbidden, Heading: "This consent page is not yours to answer",
		Text: "It was opened in another session: you may have signed in again, or as somebody else, since. Nothing was approved.",
		Next: startAgain,
	}
	if visitor != nil {
		m.Person = person(*visitor)
	}
	return m
}

func tooLate() *ui.Message {
	return &ui.Message{
		Status: http.StatusBadRequest, Heading: "This page was open for too long",
		Text: "A consent page can be answered for one hour. Nothing was approved.", Next: startAgain,
	}
}

func badForm() *ui.Message {
	return &ui.Message{
		Status: http.StatusBadRequest, Heading: "That was not an answer", Text: "The form has to say approve or deny, once. Nothing was approved.",
		Next: startAgain,
	}
}

func clientGone() *ui.Message {
	return &ui.Message{
		Status: http.StatusBadRequest, Heading: "This application is no longer registered",
		Text: "It was deleted, or its address was changed, while the page was open. Nothing was approved, and nothing was sent to it.",
	}
}

func usedAlready() *ui.Message {
	return &ui.Message{
		Status: http.StatusConflict, Heading: "You have answered this already",
		Text:  "Your answer was used, and nothing was changed now.",
		Next:  "To end the access that you gave, disconnect the application. To give it again, start from the application.",
		Links: []ui.Link{{Href: "/settings/apps", Text: "Connected apps"}},
	}
}
