package ui

import (
	"net/http"
	"net/url"
)

// maxReturn bounds the path to which the pages that set up a second factor return: it becomes part of their URLs. For a
// longer request, these pages open in a new tab, and the first page has a link that continues the request.
const maxReturn = 1500

// SecondFactorNeeded writes the page that leads to a second factor, because the workspace requires one. has reports
// whether the user has one and only needs to use it. back is the local path of the request, or "". others are links to
// the same page of other workspaces.
func (p *Pages) SecondFactorNeeded(
	w http.ResponseWriter, r *http.Request, frame Frame, workspace string, has bool, back string,
	others ...Link,
) {
	query := ""
	if back = LocalPath(back, ""); back != "" && len(back) <= maxReturn {
		query = "?return=" + url.QueryEscape(back)
	}
	m := &Message{
		Frame:   frame,
		Status:  http.StatusForbidden,
		Heading: workspace + " requires a second factor",
		Text: "Its members sign in with a passkey, or with a password and a code of an authenticator app. You have " +
			"neither yet. Nothing was changed.",
		Next: "Set one up now. You will then return to this page.",
	}
	if p.offer.Passkeys {
		m.Links = append(m.Links, Link{Href: "/settings/passkeys" + query, Text: "Add a passkey"})
	}
	m.Links = append(m.Links, Link{
		Href: "/settings/security/authenticator" + query,
		Text: "Set up an authenticator app",
	})
	if has {
		m.Text = "You signed in with your password alone. Nothing was changed."
		m.Next = "Use your passkey or authenticator app now. You will then return to this page."
		m.Links = []Link{{Href: "/login/again" + query, Text: "Confirm with your second factor"}}
	}
	switch {
	case back == "":
		m.Next = "Do this now, and then open the page or the application again."
	case query == "":
		m.Next = "Do this now, in the new tab. Then come back to this page and continue."
		for i := range m.Links {
			m.Links[i].NewTab = true
		}
		m.Links = append(m.Links, Link{Href: back, Text: "Continue"})
	}
	m.Links = append(m.Links, others...)
	p.ShowError(w, r, m)
}
