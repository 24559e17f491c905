package authorize

import (
	"errors"
	"net/http"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/shared/contract/perm"
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

// forbidden returns a page for a user who cannot give the client access.
func forbidden(v *visit) *ui.Message {
	return &ui.Message{Frame: ui.Frame{Person: v.person()}, Status: http.StatusForbidden, Switch: v.switchTo()}
}

// noWorkspace returns the page for a client that belongs to no workspace, if the user has no workspace to choose.
func noWorkspace(v *visit, closed []workspace.Membership) *ui.Message {
	c, m := v.client, forbidden(v)
	if len(closed) == 0 {
		m.Heading = "You are not a member of any workspace"
		m.Text = nameOf(c) + " needs access to a workspace, and you are not a member of one."
		m.Next = "If you have another account, sign in with it. Otherwise, ask a workspace administrator to add you."
		return m
	}
	m.Heading = "Connectors are switched off in your workspaces"
	m.Text = nameOf(c) + " is a connector, and none of your workspaces allows connectors: " +
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

func notMember(v *visit) *ui.Message {
	c, m := v.client, forbidden(v)
	m.Heading = "You are not a member of this workspace"
	m.Text = c.Name + " belongs to a workspace that you are not a member of, so you cannot give it access."
	if c.Address != "" {
		m.Text = "You are not a member of the chosen workspace, so you cannot give " + c.Name + " access to it."
	}
	m.Next = "If you have another account, sign in with it. Otherwise, ask an administrator of the workspace to add " +
		"you."
	return m
}

// cannotGive returns the page that explains why a member cannot give a client what it requests. err is an error of
// consent.Evaluate.
func cannotGive(v *visit, err error, in workspace.Workspace) *ui.Message {
	c, m := v.client, forbidden(v)
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

// The pages below refuse a submitted form. If the request is known, they link to it.

func signedOut(request string) *ui.Message {
	return reopening(request, &ui.Message{
		Status:  http.StatusForbidden,
		Heading: "You are signed out",
		Text:    "You were signed out while this page was open. Nothing was approved.",
	})
}

func notYourPage(v *visit) *ui.Message {
	return reopening(v.request, &ui.Message{
		Frame:   ui.Frame{Person: v.person()},
		Status:  http.StatusForbidden,
		Heading: "This page belongs to another session",
		Text:    "You may have signed in again, or with another account, after you opened it. Nothing was approved.",
	})
}

func tooLate(request string) *ui.Message {
	return reopening(request, &ui.Message{
		Status:  http.StatusBadRequest,
		Heading: "This page has expired",
		Text:    "A consent page is valid for one hour. Nothing was approved.",
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

// notAllowed returns the page that explains what the workspace's connector policy refuses and who can change it. err is
// an error of consent.ApplyPolicy, or grant.ErrPolicy.
func notAllowed(v *visit, err error, membership workspace.Membership) *ui.Message {
	c, in, m := v.client, membership.Workspace, forbidden(v)
	m.Heading = "The connector policy of " + in.Name + " does not allow this"
	m.Text = c.Name + " asks for permissions that " + in.Name + " does not allow for connectors. Nothing was approved."
	m.Next = "People who can manage API access in " + in.Name + " can change the policy in Settings, under " +
		"Connectors. Then connect " + c.Name + " again."
	if errors.Is(err, consent.ErrPlatformNotAllowed) {
		m.Text = platformWords(c) + " Nothing was approved."
	}
	if membership.Permissions.Has(perm.AccountAPIAccess) {
		m.Next = "You can change the policy yourself. Then connect " + c.Name + " again."
		m.Links = []ui.Link{{Href: "/settings/connectors?tenant=" + in.ID.String(), Text: "Open the policy"}}
	}
	return m
}

func platformWords(c client.Client) string {
	platform := workspace.PlatformOf(c.Platform)
	if platform == workspace.Other {
		return c.Name + " is neither Claude nor ChatGPT, and the policy does not allow other applications."
	}
	return c.Name + " belongs to " + platform.Name() + ", and the policy does not allow this platform."
}
