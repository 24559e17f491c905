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

const startAgain = "Go back to the application and start again."

func badRequest(why string) *ui.Message {
	return &ui.Message{
		Status:  http.StatusBadRequest,
		Heading: "This request is not valid",
		Text:    why,
		Next: "Go back to the application and try again. If it happens again, contact the developer of the " +
			"application.",
	}
}

func silentDomain() *ui.Message {
	return &ui.Message{
		Status:  http.StatusServiceUnavailable,
		Heading: "We cannot check this application at the moment",
		Text: "The website that describes this application does not respond. Nothing was approved, and nothing " +
			"was sent to the application.",
		Next: "Please try again in a minute. If it happens again, contact the developer of the application.",
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
		m.Text = spoken(c) + " needs access to a workspace, and you are not a member of one."
		m.Next = "If you have another account, sign in with it. Otherwise, ask a workspace administrator to add you."
		return m
	}
	m.Heading = "Connectors are switched off in your workspaces"
	m.Text = spoken(c) + " is a connector, and none of your workspaces allows connectors: " +
		names(closed) + "."
	m.Next = "An administrator of a workspace can switch on its LLM integration. Then connect " + c.Name + " again."
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
		text = "You are not a member of the chosen workspace, so you cannot give " + c.Name + " access to it."
	}
	return &ui.Message{
		Frame:   ui.Frame{Person: person(user)},
		Status:  http.StatusForbidden,
		Heading: "You are not a member of this workspace",
		Text:    text,
		Next: "If you have another account, sign in with it. Otherwise, ask an administrator of the workspace " +
			"to add you.",
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
		m.Text = c.Name + " is a connector, and this workspace does not allow connectors."
		m.Next = "An administrator of " + in.Name + " can switch on the LLM integration. Then connect " + c.Name +
			" again."
		return m
	}
	m.Heading = "You cannot give " + c.Name + " the access that it needs"
	m.Text = "It asks for permissions that you do not have in " + in.Name + ":"
	m.List = lack.Missing
	m.Next = "An administrator of " + in.Name + " can give them to you. Then connect " + c.Name + " again."
	return m
}

// needSecondFactor leads the user to a second factor and back to the request.
func (h *Handler) needSecondFactor(
	w http.ResponseWriter, r *http.Request, user session.CurrentUser, in workspace.Workspace, returnPath string,
) {
	h.Pages.SecondFactorNeeded(w, r, ui.Frame{Person: person(user)}, in.Name, user.SecondFactor.Has, returnPath)
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
		Heading: "This page belongs to another session",
		Text:    "You may have signed in again, or with another account, after you opened it. Nothing was approved.",
	})
}

func tooLate(request string) *ui.Message {
	return reopening(request, &ui.Message{
		Status: http.StatusBadRequest, Heading: "This page has expired",
		Text: "A consent page is valid for one hour. Nothing was approved.",
	})
}

func reopening(request string, m *ui.Message) *ui.Message {
	if request == "" {
		m.Next = startAgain
		return m
	}
	m.Next = "You can open the request again. If the application no longer waits for it, start again there."
	m.Links = []ui.Link{{Href: request, Text: "Open the request again"}}
	return m
}

func badForm() *ui.Message {
	return &ui.Message{
		Status:  http.StatusBadRequest,
		Heading: "The form is not valid",
		Text:    "The form must contain exactly one decision. Nothing was approved.",
		Next:    startAgain,
	}
}

func clientGone() *ui.Message {
	return &ui.Message{
		Status:  http.StatusBadRequest,
		Heading: "This application is no longer registered",
		Text: "It was deleted, or its redirect URI was changed, while this page was open. Nothing was approved, " +
			"and nothing was sent to it.",
	}
}

func usedAlready() *ui.Message {
	return &ui.Message{
		Status:  http.StatusConflict,
		Heading: "You have already answered this request",
		Text:    "Your earlier decision still applies. Nothing was changed.",
		Next:    "To end the access, disconnect the application. To give access again, start in the application.",
		Links:   []ui.Link{{Href: "/settings/apps", Text: "Connected apps"}},
	}
}
