package ui

import (
	"net/http"
	"net/url"
	"slices"
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

// NotFound writes a 404.
func (p *Pages) NotFound(w http.ResponseWriter, r *http.Request) { p.NotFoundIn(w, r, Frame{}) }

// NotFoundIn writes a 404 in a frame.
func (p *Pages) NotFoundIn(w http.ResponseWriter, r *http.Request, frame Frame) {
	p.ShowError(w, r, &Message{
		Frame:   frame,
		Status:  http.StatusNotFound,
		Heading: "Page not found",
		Text:    "The address may be wrong, or the page may have moved.",
		Links:   []Link{{Href: "/settings/user", Text: "Go to your settings"}},
	})
}

// NotAllowed writes a 405. The router has set Allow.
func (p *Pages) NotAllowed(w http.ResponseWriter, r *http.Request) {
	p.ShowError(w, r, &Message{
		Status:  http.StatusMethodNotAllowed,
		Heading: "This request is not supported",
		Text:    "This address does not accept this kind of request.",
		Next:    "Go back to the previous page and try again.",
	})
}

// NoPage returns a handler for a URL that only takes a form: a 405 for other methods, with a link to the page that the
// form is on. Users get here when they reload the response to a form.
func (p *Pages) NoPage(back string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.ShowError(w, r, &Message{
			Status:  http.StatusMethodNotAllowed,
			Heading: "There is no page at this address",
			Text:    "This address only accepts submitted forms. Nothing was submitted or changed.",
			Links:   []Link{{Href: back, Text: "Open the page with the form"}},
		})
	})
}

// Foreign writes a 403 for a form that another site sent.
func (p *Pages) Foreign(w http.ResponseWriter, r *http.Request) {
	p.ShowError(w, r, &Message{
		Status:  http.StatusForbidden,
		Heading: "This form came from another site",
		Text:    "For your security, we did not process it. Nothing was changed.",
		Next:    "If you meant to submit this form, open this site in a new tab and start again.",
	})
}

// Unavailable writes a 503 with a button that sends the request again.
func (p *Pages) Unavailable(w http.ResponseWriter, r *http.Request) { p.UnavailableIn(w, r, Frame{}) }

// UnavailableIn writes a 503 like Unavailable, in a frame.
func (p *Pages) UnavailableIn(w http.ResponseWriter, r *http.Request, frame Frame) {
	w.Header().Set("Retry-After", "5")
	p.ShowError(w, r, &Message{
		Frame:   frame,
		Status:  http.StatusServiceUnavailable,
		Heading: "The service is temporarily unavailable",
		Text:    "A part of the service does not respond. Nothing was changed, and you were not signed out.",
		Next:    "Please try again in a few seconds.",
		Retry:   retry(w, r),
	})
}

// Internal writes a 500.
func (p *Pages) Internal(w http.ResponseWriter, r *http.Request) { p.InternalIn(w, r, Frame{}) }

// InternalIn writes a 500 in a frame.
func (p *Pages) InternalIn(w http.ResponseWriter, r *http.Request, frame Frame) {
	p.ShowError(w, r, &Message{
		Frame:   frame,
		Status:  http.StatusInternalServerError,
		Heading: "Something went wrong on our side",
		Text:    "We have logged the error.",
		Next:    "Please try again. If it happens again, report the request id below.",
	})
}

// TooLarge writes a 413.
func (p *Pages) TooLarge(w http.ResponseWriter, r *http.Request) {
	p.ShowError(w, r, &Message{
		Status:  http.StatusRequestEntityTooLarge,
		Heading: "The form is too large",
		Text:    "The submitted form is larger than this page accepts.",
		Next:    "Go back, shorten your input and try again.",
	})
}

// SameOrigin accepts forms from the server's own origin only and writes a 403 for others. A request without Origin and
// Sec-Fetch-Site does not come from a current browser, and is left to the checks of next.
func (p *Pages) SameOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(p.Foreign))
	return protection.Handler(next)
}

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

// Unproven returns the page for a user whose address was never proven to be the user's (useraccount.Proof). text says
// what the user cannot do. mails tells whether the deployment sends mail.
func Unproven(text string, mails bool) *Message {
	page := &Message{
		Status:  http.StatusForbidden,
		Heading: "Confirm your e-mail address first",
		Text:    "The e-mail address of your account has never been confirmed. " + text,
		Next: "Set a new password with a link that we send to this address. This confirms it, and ends your other " +
			"sign-ins, passkeys, tokens and connections. Then try again.",
		Links: []Link{{Href: "/login/forgotten", Text: "Set a new password"}},
	}
	if !mails {
		page.Next = "Ask the person who runs this service to confirm your address. Then try again."
		page.Links = []Link{{Href: "/settings/user", Text: "Go to your settings"}}
	}
	return page
}
