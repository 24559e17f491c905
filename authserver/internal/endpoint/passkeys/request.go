package passkeys

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
)

// A request is a form that a signed-in user has sent.
type request struct {
	w       http.ResponseWriter
	r       *http.Request
	current session.CurrentUser
	form    url.Values
}

// form serves a POST from the server's own origin by a signed-in user. It redirects other users to the sign-in page,
// which leads to next.
func (h *Handler) form(next string, serve func(request) error) http.Handler {
	return h.Pages.SameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		values, ok := h.Pages.ReadForm(w, r)
		if !ok {
			return
		}
		current, signedIn, err := h.Sessions.CurrentUser(r.Context())
		if err == nil && !signedIn {
			goOn(w, signIn(next))
			return
		}
		if err == nil {
			err = serve(request{w, r, current, values})
		}
		if errors.Is(err, audit.ErrNotAuthorized) { // signed out since the request began
			goOn(w, signIn(next))
			return
		}
		if errors.Is(err, session.ErrSecondFactor) { // a second factor was added at another browser during the request
			goOn(w, again(pagePath))
			return
		}
		if err != nil {
			h.fail(w, r, err)
		}
	}))
}

// script serves a request that a page's script sends for a signed-in user.
func (h *Handler) script(
	next string,
	serve func(http.ResponseWriter, *http.Request, session.CurrentUser) error,
) http.Handler {
	return h.Pages.SameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		current, signedIn, err := h.Sessions.CurrentUser(r.Context())
		if err == nil && !signedIn {
			sendOn(w, signIn(next))
			return
		}
		if err == nil {
			err = serve(w, r, current)
		}
		if err != nil {
			h.failScript(w, r, err)
		}
	}))
}

// newKey binds a form to the sign-in that it was shown to.
func (h *Handler) newKey(v session.CurrentUser) string { return h.box.Seal(v.SignInID[:]) }

func (h *Handler) holds(key string, v session.CurrentUser) bool {
	content, err := h.box.Open(key)
	return err == nil && string(content) == string(v.SignInID[:])
}

func outdated() *ui.Message {
	return &ui.Message{
		Status:  http.StatusForbidden,
		Heading: "This form is out of date",
		Text:    "It was opened in another session, for example before you signed in again. Nothing was changed.",
		Links:   []ui.Link{{Href: pagePath, Text: "Open the page again"}},
	}
}
