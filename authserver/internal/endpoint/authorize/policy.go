package authorize

import (
	"errors"
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/perm"
)

// notAllowed returns the page that explains what the workspace's connector policy refuses and who can change it. err is
// an error of consent.ApplyPolicy, or grant.ErrPolicy.
func notAllowed(
	err error,
	user session.CurrentUser,
	c client.Client,
	membership workspace.Membership,
	returnPath string,
) *ui.Message {
	in := membership.Workspace
	m := &ui.Message{
		Frame:   ui.Frame{Person: person(user)},
		Status:  http.StatusForbidden,
		Switch:  returnPath,
		Heading: "The connector policy of " + in.Name + " does not allow this",
		Text: c.Name + " asks for permissions that " + in.Name + " does not allow for connectors. Nothing was " +
			"approved.",
		Next: "People who can manage API access in " + in.Name + " can change the policy in Settings, under " +
			"Connectors. Then connect " + c.Name + " again.",
	}
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
