package authorize

import (
	"errors"
	"net/http"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
)

const startAgain = "Go back to the application and start again from there."

func badRequest(why string) *ui.Message {
	return &ui.Message{
		Status:  http.StatusBadRequest,
		Heading: "This request cannot be used",
		Text:    why,
		Next: "Go back to the application and try again. If it happens again, tell the people who make the " +
			"application.",
	}
}

func silentDomain() *ui.Message {
	return &ui.Message{
		Status:  http.StatusServiceUnavailable,
		Heading: "We cannot check this application at the moment",
		Text: "It describes itself at its own website, and that website does not answer us. Nothing was " +
			"approved, and nothing was sent to it.",
		Next: "Please try again in a minute. If it happens again, tell the people who make the application.",
	}
}

// noWorkspace returns the page for a client that belongs to no workspace, if the user has no workspace to choose.
func noWorkspace(
	user session.CurrentUser,
	c client.Client,
	closed []workspace.Membership,
	returnPath string,
) *ui.Message {
	m := &ui.Message{Frame: ui.Frame{Person: person(user)}, Status: http.StatusForbidden, Switch: returnPath}
	if len(closed) == 0 {
		m.Heading = "You are not a member of any workspace"
		m.Text = spoken(c) + " works in a workspace, and you are a member of none."
		m.Next = "If you have another account, sign in with that one. Otherwise ask an administrator of a workspace " +
			"to add you."
		return m
	}
	m.Heading = "Connectors are switched off in your workspaces"
	m.Text = spoken(c) + " is a connector, and none of your workspaces lets connectors act in it: " +
		names(closed) + "."
	m.Next = "An administrator of a workspace can switch its LLM integration on. After that, connect " +
		c.Name + " again."
	return m
}

func names(memberships []workspace.Membership) string {
	out := make([]string, len(memberships))
	for i, m := range memberships {
		out[i] = m.Workspace.Name
	}
	return strings.Join(out, ", ")
}

func notMember(user session.CurrentUser, c client.Client, returnPath string) *ui.Message {
	text := c.Name + " belongs to a workspace that you are not a member of, so you cannot give it access."
	if c.Address != "" {
		text = "You are not a member of the workspace that was chosen, so you cannot give " + c.Name + " access to it."
	}
	return &ui.Message{
		Frame:   ui.Frame{Person: person(user)},
		Status:  http.StatusForbidden,
		Heading: "You are not a member of this workspace",
		Text:    text,
		Next: "If you have another account, sign in with that one. Otherwise ask an administrator of the " +
			"workspace to add you.",
		Switch: returnPath,
	}
}

// cannotGive returns the page that explains why a member cannot give a client what it requests. err is an error of
// consent.Evaluate.
func cannotGive(
	err error,
	user session.CurrentUser,
	c client.Client,
	in workspace.Workspace,
	returnPath string,
) *ui.Message {
	m := &ui.Message{Frame: ui.Frame{Person: person(user)}, Status: http.StatusForbidden, Switch: returnPath}
	lack, lacking := errors.AsType[*consent.MissingPermissionsError](err)
	if !lacking {
		m.Heading = "Connectors are switched off in " + in.Name
		m.Text = c.Name + " is a connector, and this workspace does not let connectors act in it."
		m.Next = "An administrator of " + in.Name + " can switch the LLM integration on. After that, connect " +
			c.Name + " again."
		return m
	}
	m.Heading = "You cannot give " + c.Name + " what it needs"
	m.Text = "It asks for permissions that you do not hold in " + in.Name + ":"
	m.List = lack.Missing
	m.Next = "An administrator of " + in.Name + " can give them to you. After that, connect " + c.Name + " again."
	return m
}

// The pages below refuse a submitted form. If the request is known, they link to it.

func signedOut(request string) *ui.Message {
	return reopening(request, &ui.Message{
		Status:  http.StatusForbidden,
		Heading: "You are signed out",
		Text:    "You were signed out while this page was open. Nothing was approved.",
	})
}

func notYourPage(user session.CurrentUser, request string) *ui.Message {
	return reopening(request, &ui.Message{
		Frame: ui.Frame{
			Person: person(user),
		},
		Status:  http.StatusForbidden,
		Heading: "This consent page is not yours to answer",
		Text: "It was opened in another session: you may have signed in again, or as somebody else, since. " +
			"Nothing was approved.",
	})
}

func tooLate(request string) *ui.Message {
	return reopening(request, &ui.Message{
		Status: http.StatusBadRequest, Heading: "This page was open for too long",
		Text: "A consent page can be answered for one hour. Nothing was approved.",
	})
}

func reopening(request string, m *ui.Message) *ui.Message {
	if request == "" {
		m.Next = startAgain
		return m
	}
	m.Next = "You can open the request again. If the application does not wait for it any more, start again from there."
	m.Links = []ui.Link{{Href: request, Text: "Open the request again"}}
	return m
}

func badForm() *ui.Message {
	return &ui.Message{
		Status:  http.StatusBadRequest,
		Heading: "That was not an answer",
		Text:    "The form has to say approve or deny, once. Nothing was approved.",
		Next:    startAgain,
	}
}

func clientGone() *ui.Message {
	return &ui.Message{
		Status:  http.StatusBadRequest,
		Heading: "This application is no longer registered",
		Text: "It was deleted, or its address was changed, while the page was open. Nothing was approved, and " +
			"nothing was sent to it.",
	}
}

func usedAlready() *ui.Message {
	return &ui.Message{
		Status:  http.StatusConflict,
		Heading: "You have answered this already",
		Text:    "Your answer was used, and nothing was changed now.",
		Next: "To end the access that you gave, disconnect the application. To give it again, start from the " +
			"application.",
		Links: []ui.Link{{Href: "/settings/apps", Text: "Connected apps"}},
	}
}
