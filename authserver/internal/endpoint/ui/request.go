package ui

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// ShowError writes a page that explains what is wrong and what to do next.
func (p *Pages) ShowError(w http.ResponseWriter, r *http.Request, m *Message) {
	if m.Title == "" {
		m.Title = m.Heading
	}
	if slices.ContainsFunc(m.Asks, func(a Ask) bool { return a.None }) {
		m.Next = "" // which says that an administrator can help
	}
	p.Show(w, r, m.Status, m)
}

//go:embed messages.json
var messagesJSON []byte

// messages returns the table of messages.json. It is read once.
var messages = sync.OnceValue(func() (all map[string]Message) {
	if err := json.Unmarshal(messagesJSON, &all); err != nil {
		panic("messages.json: " + err.Error())
	}
	return all
})

// MessageOf returns the message of messages.json with this name, with links after its own. about replaces {} in its
// heading and text.
func MessageOf(name, about string, links ...Link) *Message {
	m := messages()[name]
	m.Heading, m.Text = strings.ReplaceAll(m.Heading, "{}", about), strings.ReplaceAll(m.Text, "{}", about)
	m.Links = slices.Concat(m.Links, links)
	return &m
}

// NotFound writes a 404.
func (p *Pages) NotFound(w http.ResponseWriter, r *http.Request) { p.NotFoundIn(w, r, Frame{}) }

// NotFoundIn writes a 404 in a frame.
func (p *Pages) NotFoundIn(w http.ResponseWriter, r *http.Request, frame Frame) {
	m := MessageOf("page not found", "")
	m.Frame = frame
	p.ShowError(w, r, m)
}

// NotAllowed writes a 405. The router has set Allow.
func (p *Pages) NotAllowed(w http.ResponseWriter, r *http.Request) {
	p.ShowError(w, r, MessageOf("request not supported", ""))
}

// NoPage returns a handler for a URL that only takes a form: a 405 for other methods, with a link to the page that the
// form is on. Users get here when they reload the response to a form.
func (p *Pages) NoPage(back string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.ShowError(w, r, MessageOf("no page here", "", Link{Href: back, Text: "Open the page with the form"}))
	})
}

// Unavailable writes a 503 with a button that sends the request again.
func (p *Pages) Unavailable(w http.ResponseWriter, r *http.Request) { p.UnavailableIn(w, r, Frame{}) }

// UnavailableIn writes a 503 like Unavailable, in a frame.
func (p *Pages) UnavailableIn(w http.ResponseWriter, r *http.Request, frame Frame) {
	w.Header().Set("Retry-After", "5")
	m := MessageOf("unavailable", "")
	m.Frame, m.Retry = frame, retry(w, r)
	p.ShowError(w, r, m)
}

// Internal writes a 500.
func (p *Pages) Internal(w http.ResponseWriter, r *http.Request) { p.InternalIn(w, r, Frame{}) }

// InternalIn writes a 500 in a frame.
func (p *Pages) InternalIn(w http.ResponseWriter, r *http.Request, frame Frame) {
	m := MessageOf("internal", "")
	m.Frame = frame
	p.ShowError(w, r, m)
}

// TooLarge writes a 413.
func (p *Pages) TooLarge(w http.ResponseWriter, r *http.Request) {
	p.ShowError(w, r, MessageOf("form too large", ""))
}

// SameOrigin accepts forms from the server's own origin only and writes a 403 for others. A request without Origin and
// Sec-Fetch-Site does not come from a current browser, and is left to the checks of next.
func (p *Pages) SameOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.ShowError(w, r, MessageOf("foreign form", ""))
	}))
	return protection.Handler(next)
}

// maxReturn bounds the path to which the pages that set up a second factor return: it becomes part of their URLs. For a
// longer request, these pages open in a new tab, and the first page has a link that continues the request.
const maxReturn = 1500

// SecondFactorNeeded writes the page that leads to a second factor, because the workspace requires one. has reports
// whether the user has one and only needs to use it. back is the local path of the request, or "". others are links to
// the same page of other workspaces.
func (p *Pages) SecondFactorNeeded(
	w http.ResponseWriter, r *http.Request, frame Frame, workspace string, has bool, back string, others ...Link,
) {
	query := ""
	if back = LocalPath(back, ""); back != "" && len(back) <= maxReturn {
		query = "?return=" + url.QueryEscape(back)
	}
	m := MessageOf("second factor to use", workspace)
	if has {
		m.Links = append(m.Links, Link{Href: "/login/again" + query, Text: "Confirm with your second factor"})
	} else {
		m = MessageOf("second factor to set up", workspace)
		if p.offer.Passkeys {
			m.Links = append(m.Links, Link{Href: "/settings/passkeys" + query, Text: "Add a passkey"})
		}
		app := Link{Href: "/settings/security/authenticator" + query, Text: "Set up an authenticator app"}
		m.Links = append(m.Links, app)
	}
	m.Frame = frame
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

// Unproven returns the page for a user whose address was never proven to be the user's (useraccount.Proof). text says
// what the user cannot do. mails tells whether the deployment sends mail.
func Unproven(text string, mails bool) *Message {
	if !mails {
		return MessageOf("address not proven, without mail", text)
	}
	return MessageOf("address not proven", text)
}
