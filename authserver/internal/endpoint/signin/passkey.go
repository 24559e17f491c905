package signin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/loginstate"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/signin/webauthn"
	"github.com/almonerhq/almoner/shared/net/web"
)

// passkeyRoutes returns the routes that need passkeys.
func (h *Handler) passkeyRoutes() Routes {
	return Routes{
		"/login/passkey":               {"POST": h.form(passkeys, h.signInWithPasskey)},
		"/login/passkey/options":       {"POST": h.script(passkeys, h.passkeySignInOptions)},
		"/login/again/passkey":         {"POST": h.form(passkeys, h.confirmPasskey)},
		"/login/again/passkey/options": {"POST": h.script(passkeys, h.passkeyReauthOptions)},
		"/settings/passkeys": {
			"GET":  h.page(passkeys, h.listPasskeys),
			"POST": h.form(passkeys, h.addPasskey),
		},
		"/settings/passkeys/options":  {"POST": h.script(passkeys, h.addPasskeyOptions)},
		"/settings/passkeys/remove":   {"POST": h.form(passkeys, h.removePasskey)},
		"/invitation/passkey":         {"POST": h.invitationForm(h.createPasskeyAccount)},
		"/invitation/passkey/options": {"POST": h.script(invitation, h.newAccountOptions)},
	}
}

// passkeySignInOptions serves POST /login/passkey/options.
func (h *Handler) passkeySignInOptions(v *visit) error {
	challenge, err := h.RelyingParty.BeginLogin()
	if err != nil {
		return err
	}
	by := h.States.BindToBrowser(v.w, v.r)
	return h.sendChallenge(v, loginstate.PasskeySignIn, by, challenge, challenge.State)
}

// sendChallenge stores a challenge with data and sends it to the script, unless the client address has begun too many
// attempts.
func (h *Handler) sendChallenge(
	v *visit, purpose loginstate.Purpose, by loginstate.Binding, challenge webauthn.Challenge, data any,
) error {
	ctx := v.r.Context()
	if wait := h.Attempts.Begun(ctx, h.address(v)); wait > 0 {
		web.SetRateLimited(v.w.Header(), wait, session.BegunLimit(wait))
		tooMany := "Too many attempts from your network. Please try again in a few minutes."
		return v.refuse(http.StatusTooManyRequests, tooMany)
	}
	err := h.States.Begin(ctx, purpose, by, challenge.Challenge, passkey.ChallengeLife, data)
	if err == nil {
		web.JSON(v.w, http.StatusOK, challenge.Options)
	}
	return err
}

// signInWithPasskey serves POST /login/passkey.
func (h *Handler) signInWithPasskey(v *visit) error {
	next := ui.LocalPath(v.form.Get("return"), "")
	by, known := h.States.BoundToBrowser(v.r)
	err := errNotAccepted
	if known {
		var user workspace.User
		var proof session.Proof
		if user, proof, err = h.checkPasskey(v, loginstate.PasskeySignIn, by); err == nil {
			err = h.begin(v, user, proof)
		}
	}
	switch {
	case isRefusal(err) && !known:
		return h.refuseSignIn(v, signInPage(next, ""), ui.NoCookie)
	case isRefusal(err):
		return h.refuseSignIn(v, signInPage(next, ""), problemOf(err, "Please try again, or sign in another way."))
	case err != nil:
		return err
	}
	return v.redirect(ui.LocalPath(next, home))
}

// passkeyReauthOptions serves POST /login/again/passkey/options.
func (h *Handler) passkeyReauthOptions(v *visit) error {
	if err := h.requireUser(v, home); err != nil {
		return err
	}
	challenge, err := h.RelyingParty.BeginLogin()
	if err != nil {
		return err
	}
	by := loginstate.BindToSignIn(v.current.SignInID)
	return h.sendChallenge(v, loginstate.PasskeyReauth, by, challenge, challenge.State)
}

// confirmPasskey serves POST /login/again/passkey. The passkey must belong to the user who is signed in.
func (h *Handler) confirmPasskey(v *visit) error {
	if err := h.requireUser(v, home); err != nil {
		return err
	}
	next := ui.LocalPath(v.form.Get("return"), home)
	user, proof, err := h.checkPasskey(v, loginstate.PasskeyReauth, loginstate.BindToSignIn(v.current.SignInID))
	if err == nil && user.ID != v.current.User.ID {
		err = errNotAccepted
	}
	if err == nil {
		err = h.reauthenticated(v, proof)
	}
	switch {
	case isRefusal(err):
		return h.done(v, reauthPath(next), problemOf(err, "Please try again, or use another method."))
	case err != nil:
		return err
	}
	return v.redirect(next)
}

// errNotAccepted means that a response does not authenticate the user. The cause is in the log.
var errNotAccepted = errors.New("the passkey is not accepted")

// errChanged is an errNotAccepted that another attempt does not change: the passkey's counter or backup flag does not
// match the stored one.
var errChanged = fmt.Errorf("%w: it has changed", errNotAccepted)

const unknownChallenge = "its challenge is unknown, expired or already used"

func isRefusal(err error) bool {
	return errors.Is(err, errNotAccepted) || errors.Is(err, session.ErrProofInvalid)
}

// problemOf says on the page why a passkey was not accepted, and what to do; otherwise is the advice if the cause is
// not known.
func problemOf(err error, otherwise string) string {
	if errors.Is(err, errChanged) {
		return "This passkey has changed and no longer works here. Sign in another way, remove it in Settings, " +
			"Security, and add it again."
	}
	return "The passkey was not accepted. " + otherwise
}

// checkPasskey returns the user whose passkey answered a challenge. Its error is errNotAccepted if the response is not
// valid; other errors are not the caller's fault.
func (h *Handler) checkPasskey(
	v *visit, purpose loginstate.Purpose, by loginstate.Binding,
) (user workspace.User, proof session.Proof, err error) {
	ctx := v.r.Context()
	answer, err := webauthn.ParseSignature(v.form.Get("credential"))
	if err != nil {
		return user, proof, h.notAccepted(v, err.Error())
	}
	var stored json.RawMessage
	found, err := h.States.Take(ctx, purpose, by, answer.Challenge(), &stored) // P1
	if err != nil {
		return user, proof, err
	}
	if !found {
		return user, proof, h.notAccepted(v, unknownChallenge)
	}
	key, user, known, err := h.Store.PasskeyByCredential(ctx, answer.CredentialID())
	switch {
	case err != nil:
		return user, proof, err
	case !known:
		return user, proof, h.notAccepted(v, "the credential is not known")
	case user.DisabledAt != nil:
		return user, proof, h.notAccepted(v, "the user is disabled")
	}
	use, err := h.RelyingParty.FinishLogin(user, key, stored, answer)
	switch {
	case errors.Is(err, webauthn.ErrChanged):
		_ = h.notAccepted(v, err.Error())
		return user, proof, errChanged
	case errors.Is(err, webauthn.ErrRefused):
		return user, proof, h.notAccepted(v, err.Error())
	case err != nil:
		return user, proof, err
	}
	good, err := h.Store.UsePasskey(ctx, key.ID, use, audit.Event{
		UserID:    &user.ID,
		Actor:     "anonymous",
		Action:    audit.PasskeyStopped,
		Subject:   "passkey:" + key.ID.String(),
		RequestID: web.RequestID(ctx),
		Detail:    map[string]any{"name": key.Name, "reason": "copied", "address": h.address(v).String()},
	})
	if err == nil && !good {
		_ = h.notAccepted(v, "its counter did not go up: it may be a copy")
		err = errChanged
	}
	return user, session.Proof{Method: session.Passkey, PasskeyID: key.ID}, err
}

func (h *Handler) notAccepted(v *visit, why string) error {
	h.Log.InfoContext(v.r.Context(), "passkey refused", "reason", why)
	return errNotAccepted
}

// takeCreation returns the form's response to a challenge for a new passkey, and reads the data of the challenge. Its
// error is errNotAccepted if the response is not valid.
func (h *Handler) takeCreation(
	v *visit, purpose loginstate.Purpose, by loginstate.Binding, data any,
) (webauthn.Creation, error) {
	answer, err := webauthn.ParseCreation(v.form.Get("credential"))
	if err != nil {
		return answer, h.notAccepted(v, err.Error())
	}
	found, err := h.States.Take(v.r.Context(), purpose, by, answer.Challenge(), data)
	if err == nil && !found {
		err = h.notAccepted(v, unknownChallenge)
	}
	return answer, err
}

// finishCreation returns the new passkey of a response. Its error is errNotAccepted if the response is not valid.
func (h *Handler) finishCreation(
	v *visit, user workspace.User, state json.RawMessage, answer webauthn.Creation,
) (passkey.Passkey, error) {
	key, err := h.RelyingParty.FinishRegistration(user, state, answer)
	if errors.Is(err, webauthn.ErrRefused) {
		err = h.notAccepted(v, err.Error())
	}
	return key, err
}
