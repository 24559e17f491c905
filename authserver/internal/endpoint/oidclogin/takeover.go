package oidclogin

import (
	"crypto/rand"
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/loginstate"
	"github.com/almonerhq/almoner/authserver/internal/signin/oidc"
)

// pendingTakeover is the stored state of a sign-in until the person confirms the takeover.
type pendingTakeover struct {
	Identity oidc.Identity
	Return   string
}

// askToTakeOver shows what a takeover ends. The form completes the sign-in, once and at this browser.
func (h *Handler) askToTakeOver(w http.ResponseWriter, r *http.Request, user workspace.User, p pendingTakeover) {
	key := rand.Text()
	by := h.Ceremonies.BindToBrowser(w, r)
	if err := h.Ceremonies.Begin(r.Context(), loginstate.OIDCTakeover, by, key, attemptLife, p); err != nil {
		h.fail(w, r, err)
		return
	}
	page := &ui.Takeover{Key: key, Email: user.Email, Return: p.Return}
	page.Title = "Confirm your e-mail address"
	h.Pages.Show(w, r, http.StatusOK, page)
}

// Confirm serves POST /login/upstream/confirm: key. It accepts requests from the server's own origin only.
func (h *Handler) Confirm() http.Handler {
	return h.Pages.SameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		form, ok := h.Pages.ReadForm(w, r)
		if !ok {
			return
		}
		var p pendingTakeover
		by, known := h.Ceremonies.BoundToBrowser(r)
		if key := form.Get("key"); known && key != "" {
			var err error
			if known, err = h.Ceremonies.Take(r.Context(), loginstate.OIDCTakeover, by, key, &p); err != nil {
				h.fail(w, r, err)
				return
			}
		} else {
			known = false
		}
		_, signedIn, err := h.Sessions.CurrentUser(r.Context())
		switch {
		case err != nil:
			h.fail(w, r, err)
		case known:
			h.signIn(w, r, p.Return, p.Identity, true)
		case signedIn: // the form was sent twice
			goOn(w, home)
		default:
			h.notOurs(w, r)
		}
	}))
}
