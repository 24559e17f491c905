package developers

import (
	"errors"
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/web"
)

// reauthMethod returns how the user must authenticate before a credential is created.
func (h *Handler) reauthMethod(v *settings.Request) (reauthMethod, error) {
	if v.Current.Fresh(h.Now()) {
		return noReauth, nil
	}
	_, hash, _, err := h.Store.UserByEmail(v.R.Context(), v.Current.User.Email)
	if err != nil {
		return noReauth, err
	}
	app, err := h.Store.Authenticator(v.R.Context(), v.Current.User.ID)
	if err != nil {
		return noReauth, err
	}
	if hash == "" || app.Active {
		return onOtherPage, nil
	}
	return byPassword, nil
}

// reauthenticate authenticates the user by password, unless a recent authentication exists. It returns the message for
// the password field, or "". If the rest of the form is not valid, it only checks whether a password was entered: the
// page then shows all errors at once.
func (h *Handler) reauthenticate(v *settings.Request, valid bool) (status int, note string, err error) {
	method, err := h.reauthMethod(v)
	password := credential.Secret(v.Form.Get("password"))
	switch {
	case err != nil:
		return 0, "", err
	case method == noReauth && valid:
		return http.StatusOK, "", nil
	case method == onOtherPage:
		return http.StatusBadRequest, "Confirm your identity first.", nil
	case method == byPassword && password == "":
		return http.StatusBadRequest, "Enter your password to continue.", nil
	case !valid:
		return http.StatusBadRequest, "", nil
	}
	_, result, err := h.verifier.Verify(
		v.R.Context(),
		v.Current.User.Email,
		password,
		h.Proxies.ClientAddress(v.R),
		true,
	)
	switch {
	case errors.Is(err, session.ErrBusy):
		web.SetRetryAfter(v.W.Header(), session.BusyFor)
		return http.StatusTooManyRequests, "Too many people are signing in right now. Please try again in a few " +
			"seconds.", nil
	case err != nil:
		return 0, "", err
	case result.Wait > 0:
		web.SetRateLimited(v.W.Header(), result.Wait, result.Limit)
		return http.StatusTooManyRequests, "Too many wrong passwords. Please try again later.", nil
	case !result.OK:
		return http.StatusBadRequest, "The password is incorrect.", nil
	}
	event := v.Current.Event(v.R.Context(), audit.SignInProved, "sign_in:"+v.Current.SignInID.String())
	event.Detail = map[string]any{"method": session.Password, "address": h.Proxies.ClientAddress(v.R).String()}
	err = h.Sessions.Reauthenticated(v.W, v.R, v.Current, result.Proof, event)
	if errors.Is(err, session.ErrProofInvalid) {
		return http.StatusBadRequest, "The password is incorrect.", nil
	}
	if errors.Is(err, session.ErrCodeNeeded) { // an app was set up meanwhile
		return http.StatusBadRequest, "Confirm your identity first.", nil
	}
	if err == nil {
		v.Current.AuthenticatedAt = h.Now()
	}
	return http.StatusOK, "", err
}
