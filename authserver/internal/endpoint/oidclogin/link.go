package oidclogin

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
)

const pagePath = "/settings/provider"

// Page serves GET /settings/provider.
func (h *Handler) Page(w http.ResponseWriter, r *http.Request) {
	if current, ok := h.currentUser(w, r); ok {
		h.show(w, r, current, http.StatusOK, "")
	}
}

// Unlink serves POST /settings/provider/unlink. It accepts requests from the server's own origin only.
func (h *Handler) Unlink() http.Handler {
	return h.Pages.SameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		form, ok := h.Pages.ReadForm(w, r)
		if !ok {
			return
		}
		if current, ok := h.currentUser(w, r); ok {
			h.unlink(w, r, current, form.Get("key"))
		}
	}))
}

func (h *Handler) unlink(w http.ResponseWriter, r *http.Request, current session.CurrentUser, key string) {
	if !h.holds(key, current) {
		h.outdated(w, r)
		return
	}
	if !current.MayChangeFactors(h.Now()) {
		goOn(w, "/login/again?return="+url.QueryEscape(pagePath))
		return
	}
	event := current.Event(r.Context(), audit.IdentityUnlinked, "user:"+current.User.ID.String())
	event.Detail = map[string]any{"issuer": h.Provider.Issuer(), "address": h.Proxies.ClientAddress(r).String()}
	unlinked, needed, err := h.Identities.UnlinkIdentity(
		r.Context(),
		current.User.ID,
		h.Provider.Issuer(),
		h.Passkeys,
		event,
	)
	if errors.Is(err, audit.ErrNotAuthorized) { // signed out since the request began
		goOn(w, "/login?return="+url.QueryEscape(pagePath))
		return
	}
	if errors.Is(err, session.ErrSecondFactor) { // a second factor was added at another browser during the request
		goOn(w, "/login/again?return="+url.QueryEscape(pagePath))
		return
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	if needed {
		h.show(
			w,
			r,
			current,
			http.StatusConflict,
			"You need "+h.Name+" to sign in. Before you unlink it, add a passkey or ask an administrator to set a "+
				"password.",
		)
		return
	}
	notice := "Your " + h.Name + " account was unlinked."
	if !unlinked {
		notice = "No " + h.Name + " account was linked."
	}
	if err := h.Sessions.Flash(w, r, notice); err != nil {
		h.fail(w, r, err)
		return
	}
	goOn(w, pagePath)
}

// show shows whether the user's account is linked.
func (h *Handler) show(
	w http.ResponseWriter,
	r *http.Request,
	current session.CurrentUser,
	status int,
	problem string,
) {
	since, linked, err := h.Identities.IdentitySince(r.Context(), current.User.ID, h.Provider.Issuer())
	if err != nil {
		h.fail(w, r, err)
		return
	}
	notice, err := h.Sessions.TakeFlash(w, r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	switcher, err := h.Switcher(r, current, "security")
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.Pages.Show(w, r, status, &ui.Provider{
		Frame: ui.Frame{
			Title:    "Sign-in with " + h.Name,
			Section:  "security",
			Switcher: switcher,
			Held:     current.Held,
			Notice:   notice,
			Problem:  problem,
			Person:   &ui.Person{Name: current.User.Name, Email: current.User.Email},
		},
		Key:    h.newKey(current),
		Name:   h.Name,
		Linked: linked,
		Since:  since,
		Fresh:  current.MayChangeFactors(h.Now()),
	})
}

// currentUser returns the user who is signed in. If there is none, it redirects to the sign-in page.
func (h *Handler) currentUser(w http.ResponseWriter, r *http.Request) (session.CurrentUser, bool) {
	current, signedIn, err := h.Sessions.CurrentUser(r.Context())
	switch {
	case err != nil:
		h.fail(w, r, err)
	case !signedIn:
		goOn(w, "/login?return="+url.QueryEscape(pagePath))
	}
	return current, err == nil && signedIn
}

// newKey binds a form to the sign-in that it was shown to.
func (h *Handler) newKey(v session.CurrentUser) string { return h.box.Seal(v.SignInID[:]) }

func (h *Handler) holds(key string, v session.CurrentUser) bool {
	content, err := h.box.Open(key)
	return err == nil && string(content) == string(v.SignInID[:])
}

func (h *Handler) outdated(w http.ResponseWriter, r *http.Request) {
	h.Pages.ShowError(w, r, &ui.Message{
		Status:  http.StatusForbidden,
		Heading: "This form is out of date",
		Text:    "It was opened in another session, for example before you signed in again. Nothing was changed.",
		Links:   []ui.Link{{Href: pagePath, Text: "Open the page again"}},
	})
}
