package passkeys

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
)

// A visit is one form sent by somebody who is signed in.
type request struct {
	w       http.ResponseWriter
	r       *http.Request
	visitor session.CurrentUser
	form    url.Values
}

// form serves a POST of this origin by somebody who is signed in. Whoever is not goes to the sign-in page, and from
// there to next.
func (h *Handler) form(next string, serve func(request) error) http.Handler {
	return h.Pages.SameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		values, ok := h.Pages.ReadForm(w, r)
		if !ok {
			return
		}
		visitor, signedIn, err := h.Sessions.CurrentUser(r.Context())
		if err == nil && !signedIn {
			goOn(w, signIn(next))
			return
		}
		if err == nil {
			err = serve(request{w, r, visitor, values})
		}
		if errors.Is(err, audit.ErrNotAuthorized) { // signed out meanwhile
			goOn(w, signIn(next))
			return
		}
		if err != nil {
			h.fail(w, r, err)
		}
	}))
}

// script serves a request of a page's script, by somebody who is signed in.
func (h *Handler) script(
	next string,
	serve func(http.ResponseWriter, *http.Request, session.CurrentUser) error,
) http.Handler {
	return h.Pages.SameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		visitor, signedIn, err := h.Sessions.CurrentUser(r.Context())
		if err == nil && !signedIn {
			sendOn(w, signIn(next))
			return
		}
		if err == nil {
			err = serve(w, r, visitor)
		}
		if err != nil {
			h.failScript(w, r, err)
		}
	}))
}

// newKey ties a form to the sign-in that saw it.
func (h *Handler) newKey(v session.CurrentUser) string { return h.box.Seal(v.SignInID[:]) }

func (h *Handler) holds(key string, v session.CurrentUser) bool {
	content, err := h.box.Open(key)
	return err == nil && string(content) == string(v.SignInID[:])
}

func outdated() *ui.Message {
	return &ui.Message{
		Status:  http.StatusForbidden,
		Heading: "This form is not yours to send, or is out of date",
		Text:    "It was opened in another session: you may have signed in again since. Nothing was changed.",
		Links:   []ui.Link{{Href: pagePath, Text: "Open the page again"}},
	}
}
