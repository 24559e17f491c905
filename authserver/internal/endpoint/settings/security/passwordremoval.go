package security

import (
	"errors"
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
)

// removePassword serves POST /settings/security/password/remove. It refuses to remove the last sign-in method.
func (h *Handler) removePassword() http.Handler {
	return h.Form(passwordSection, func(v *settings.Request) error {
		view, err := h.passwordView(v)
		if err != nil {
			return err
		}
		view.EndOthers = true
		if !view.Fresh {
			return h.Done(v, passwordSection.Path(), "Nothing was changed. Confirm your identity first.")
		}
		removal := password.Removal{
			UserID:   v.Current.User.ID,
			Passkeys: h.Passkeys,
			Issuer:   h.Issuer,
			Device:   session.DeviceName(v.R.UserAgent()),
			Address:  h.Proxies.ClientAddress(v.R).String(),
		}
		err = h.Store.RemovePassword(v.R.Context(), removal, h.ownEvent(v, audit.UserPasswordRemoved))
		switch {
		case errors.Is(err, password.ErrLastSignInMethod):
			view.Problem = "You need your password to sign in. Add a passkey before you remove it."
			return h.again(v, view, http.StatusConflict)
		case err != nil:
			return err
		}
		return h.Done(v, Section.Path(), "Your password was removed. You now sign in without it.")
	})
}
