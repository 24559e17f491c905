package signin

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/displayname"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/net/web"
)

const passkeysPath = "/settings/passkeys"

// passkeyRoutes returns the routes that need passkeys. Package passkey states their rules (P1 to P4).
func (h *Handler) passkeyRoutes() Routes {
	return Routes{
		"/login/passkey":               {"POST": h.form(passkeys, h.signInWithPasskey)},
		"/login/passkey/options":       {"POST": h.script(passkeys, h.passkeyOptions)},
		"/login/again/passkey":         {"POST": h.form(passkeys, h.forUser(home, h.confirmPasskey))},
		"/login/again/passkey/options": {"POST": h.script(passkeys, h.forUser(home, h.passkeyOptions))},
		"/settings/passkeys": {
			"GET":  h.page(passkeys, h.forUser(passkeysPath, h.listPasskeys)),
			"POST": h.form(passkeys, h.forUser(passkeysPath, h.fresh(h.addPasskey))),
		},
		"/settings/passkeys/options": {
			"POST": h.script(passkeys, h.forUser(passkeysPath, h.fresh(h.addPasskeyOptions))),
		},
		"/settings/passkeys/remove": {
			"POST": h.form(passkeys, h.forUser(passkeysPath, h.keyed(h.passkeyForms, h.fresh(h.removePasskey)))),
		},
		"/invitation/passkey":         {"POST": h.invitationForm(h.createPasskeyAccount)},
		"/invitation/passkey/options": {"POST": h.script(invitation, h.newAccountOptions)},
	}
}

// passkeyOptions serves POST /login/passkey/options and POST /login/again/passkey/options: a challenge as JSON. It is
// bound to the browser or, to authenticate again, to the sign-in.
func (h *Handler) passkeyOptions(v *visit) error {
	challenge, err := h.RelyingParty.BeginLogin()
	if err != nil {
		return err
	}
	if id := v.current.SignInID; id != uuid.Nil {
		return h.sendChallenge(v, session.PasskeyReauth, session.BindToSignIn(id), challenge, challenge.State)
	}
	by := h.Sessions.BindToBrowser(v.w, v.r)
	return h.sendChallenge(v, session.PasskeySignIn, by, challenge, challenge.State)
}

// sendChallenge stores a challenge with data and sends it to the script, unless the client address has begun too many
// attempts.
func (h *Handler) sendChallenge(
	v *visit, purpose session.Purpose, by session.Binding, challenge passkey.Challenge, data any,
) error {
	ctx := v.r.Context()
	if v.limited(h.Attempts.Begun(ctx, h.address(v))) {
		tooMany := "Too many attempts from your network. Please try again in a few minutes."
		return v.refuse(http.StatusTooManyRequests, tooMany)
	}
	err := h.Sessions.BeginLogin(ctx, purpose, by, challenge.State.Challenge, passkey.ChallengeLife, data)
	if err == nil {
		web.JSON(v.w, http.StatusOK, challenge.Options)
	}
	return err
}

// signInWithPasskey serves POST /login/passkey (credential, return): 303, else the sign-in page (400, 503).
func (h *Handler) signInWithPasskey(v *visit) error {
	next := ui.LocalPath(v.form.Get("return"), "")
	by, known := h.Sessions.BoundToBrowser(v.r)
	if !known {
		return h.refuseSignIn(v, signInPage(next, ""), ui.NoCookie)
	}
	user, proof, err := h.checkPasskey(v, session.PasskeySignIn, by)
	if err == nil {
		err = h.begin(v, user, proof)
	}
	switch {
	case h.isRefusal(v, err), errors.Is(err, session.ErrProofInvalid):
		return h.refuseSignIn(v, signInPage(next, ""), problemOf(err, "Please try again, or sign in another way."))
	case err != nil:
		return err
	}
	return v.redirect(ui.LocalPath(next, home))
}

// confirmPasskey serves POST /login/again/passkey (credential, return): 303, else back to the form. The passkey must
// belong to the user who is signed in.
func (h *Handler) confirmPasskey(v *visit) error {
	next := ui.LocalPath(v.form.Get("return"), home)
	user, proof, err := h.checkPasskey(v, session.PasskeyReauth, session.BindToSignIn(v.current.SignInID))
	if err == nil && user.ID != v.current.User.ID {
		err = session.ErrProofInvalid
	}
	if err == nil {
		err = h.Sessions.Reauthenticated(v.w, v.r, v.current, proof, h.address(v))
	}
	switch {
	case h.isRefusal(v, err), errors.Is(err, session.ErrProofInvalid):
		return h.done(v, reauthPath(next), problemOf(err, "Please try again, or use another method."))
	case err != nil:
		return err
	}
	return v.redirect(next)
}

// A refusedPasskey is a passkey.ErrRefused or passkey.ErrChanged whose cause this package found, for the log.
type refusedPasskey struct {
	error
	cause string
}

func (r refusedPasskey) Error() string { return r.cause }
func (r refusedPasskey) Unwrap() error { return r.error }

// errChallenge means that the challenge of a response is unknown, expired or already used.
var errChallenge = refusedPasskey{passkey.ErrRefused, "its challenge is unknown, expired or already used"}

// isRefusal reports whether err is passkey.ErrRefused, and logs the cause.
func (h *Handler) isRefusal(v *visit, err error) bool {
	refused := errors.Is(err, passkey.ErrRefused)
	if refused {
		h.Log.InfoContext(v.r.Context(), "passkey refused", "reason", err.Error())
	}
	return refused
}

// problemOf says on the page why a passkey was not accepted, and what to do; otherwise is the advice if the cause is
// not known.
func problemOf(err error, otherwise string) string {
	if errors.Is(err, passkey.ErrChanged) {
		return "This passkey has changed and no longer works here. Sign in another way, remove it in Settings, " +
			"Security, and add it again."
	}
	return "The passkey was not accepted. " + otherwise
}

// checkPasskey returns the user whose passkey answered a challenge. Its error is passkey.ErrRefused if the response is
// not valid; other errors are not the caller's fault.
func (h *Handler) checkPasskey(
	v *visit, purpose session.Purpose, by session.Binding,
) (user workspace.User, proof session.Proof, err error) {
	ctx := v.r.Context()
	answer, err := passkey.ParseSignature(v.form.Get("credential"))
	if err != nil {
		return user, proof, err
	}
	var stored passkey.State
	found, err := h.Sessions.TakeLogin(ctx, purpose, by, answer.Challenge(), &stored) // P1
	if err == nil && !found {
		err = errChallenge
	}
	if err != nil {
		return user, proof, err
	}
	key, user, known, err := h.Store.PasskeyByCredential(ctx, answer.CredentialID())
	switch {
	case err != nil:
		return user, proof, err
	case !known:
		return user, proof, refusedPasskey{passkey.ErrRefused, "the credential is not known"}
	case user.DisabledAt != nil:
		return user, proof, refusedPasskey{passkey.ErrRefused, "the user is disabled"}
	}
	use, err := h.RelyingParty.FinishLogin(user, key, stored, answer)
	if err != nil {
		return user, proof, err
	}
	subject := "passkey:" + key.ID.String()
	copied := h.event(v, audit.PasskeyStopped, subject, map[string]any{"name": key.Name, "reason": "copied"})
	copied.UserID = &user.ID
	good, err := h.Store.UsePasskey(ctx, key.ID, use, copied)
	if err == nil && !good {
		err = refusedPasskey{passkey.ErrChanged, "its counter did not go up: it may be a copy"}
	}
	return user, session.Proof{Method: session.Passkey, PasskeyID: key.ID}, err
}

// takeCreation returns the form's response to a challenge for a new passkey, and reads the data of the challenge. Its
// error is passkey.ErrRefused if the response is not valid.
func (h *Handler) takeCreation(
	v *visit, purpose session.Purpose, by session.Binding, data any,
) (passkey.Creation, error) {
	answer, err := passkey.ParseCreation(v.form.Get("credential"))
	if err != nil {
		return answer, err
	}
	found, err := h.Sessions.TakeLogin(v.r.Context(), purpose, by, answer.Challenge(), data)
	if err == nil && !found {
		err = errChallenge
	}
	return answer, err
}

// listPasskeys serves GET /settings/passkeys.
func (h *Handler) listPasskeys(v *visit) error {
	return h.showPasskeys(v, http.StatusOK, "", ui.Passkeys{Name: session.DeviceName(v.r.UserAgent())})
}

// showPasskeys adds the user's data to the page and shows it.
func (h *Handler) showPasskeys(v *visit, status int, problem string, page ui.Passkeys) error {
	has, err := h.Store.Passkeys(v.r.Context(), v.current.User.ID)
	if err != nil {
		return err
	}
	if page.Frame, err = h.securityFrame(v, "Passkeys"); err != nil {
		return err
	}
	page.Problem, page.AsksPasskey = problem, true
	page.Key, page.Fresh = formKey(h.passkeyForms, v), v.current.MayChangeFactors(h.Now())
	page.MaxName, page.Full = passkey.MaxName, len(has) >= passkey.MaxPerUser
	page.Return, page.Again = ui.LocalPath(v.form.Get("return"), ""), reauthPath(passkeysPath)
	if page.Return != "" {
		page.Again = reauthPath(passkeysPath + "?return=" + url.QueryEscape(page.Return))
	}
	for _, p := range has {
		page.Passkeys = append(page.Passkeys, ui.Passkey{
			ID:       p.ID.String(),
			Name:     p.Name,
			Synced:   p.BackedUp,
			Copied:   p.CopiedAt != nil,
			Created:  p.Created,
			LastUsed: p.LastUsed,
		})
	}
	return h.show(v, status, &page)
}

// addPasskeyOptions serves POST /settings/passkeys/options: a challenge for a new passkey (JSON).
func (h *Handler) addPasskeyOptions(v *visit) error {
	has, err := h.Store.Passkeys(v.r.Context(), v.current.User.ID)
	if err != nil {
		return err
	}
	challenge, err := h.RelyingParty.BeginRegistration(v.current.User, has)
	if err != nil {
		return err
	}
	by := session.BindToSignIn(v.current.SignInID)
	return h.sendChallenge(v, session.AddPasskey, by, challenge, challenge.State)
}

// addPasskey serves POST /settings/passkeys (name, credential). The challenge proves that the page belongs to this
// sign-in.
func (h *Handler) addPasskey(v *visit) error {
	name := strings.TrimSpace(v.form.Get("name"))
	if note := displayname.Check(name, passkey.MaxName); note != "" {
		return h.showPasskeys(v, http.StatusBadRequest, "", ui.Passkeys{Name: name, NameNote: note})
	}
	var stored passkey.State
	response, err := h.takeCreation(v, session.AddPasskey, session.BindToSignIn(v.current.SignInID), &stored)
	var key passkey.Passkey
	if err == nil {
		key, err = h.RelyingParty.FinishRegistration(v.current.User, stored, response)
	}
	added := false
	if err == nil {
		key.Name = name
		subject := "passkey:" + key.ID.String()
		event := h.ownEvent(v, audit.PasskeyAdded, subject, map[string]any{"name": name})
		added, err = h.Store.AddPasskey(v.r.Context(), key, event)
	}
	switch {
	case h.isRefusal(v, err), err == nil && !added:
		problem := "The passkey was not added. Please try again."
		return h.showPasskeys(v, http.StatusBadRequest, problem, ui.Passkeys{Name: name})
	case err != nil:
		return err
	}
	return h.done(v, ui.LocalPath(v.form.Get("return"), passkeysPath), "The passkey "+name+" was added.")
}

// removePasskey serves POST /settings/passkeys/remove (key, id).
func (h *Handler) removePasskey(v *visit) error {
	outcome := passkey.NoSuchPasskey
	if id, err := web.ParseID(v.form.Get("id")); err == nil {
		event := h.ownEvent(v, audit.PasskeyRemoved, "passkey:"+id.String(), map[string]any{})
		outcome, err = h.Store.RemovePasskey(v.r.Context(), v.current.User.ID, id, h.issuer, event)
		if err != nil {
			return err
		}
	}
	switch outcome {
	case passkey.OnlyWayIn:
		problem := "You need this passkey to sign in. Add another passkey before you remove it."
		return h.showPasskeys(v, http.StatusConflict, problem, ui.Passkeys{})
	case passkey.NoSuchPasskey:
		return h.done(v, passkeysPath, "The passkey was already removed.")
	}
	return h.done(v, passkeysPath, "The passkey was removed.")
}

// keyed calls serve if the form's key, which box opens, was made for the sign-in of the request. It is used in forUser.
func (h *Handler) keyed(box *seal.Box, serve func(*visit) error) func(*visit) error {
	return func(v *visit) error {
		content, err := box.Open(v.form.Get("key"))
		if err != nil || string(content) != string(v.current.SignInID[:]) {
			return h.tell(v, "form_outdated", ui.Link{Href: v.next, Text: "Open the page again"})
		}
		return serve(v)
	}
}

// formKey binds a form to the sign-in that it is shown to.
func formKey(box *seal.Box, v *visit) string { return box.Seal(v.current.SignInID[:]) }

// errReauthenticate means that the request needs a recent authentication.
var errReauthenticate = errors.New("the last authentication is not recent enough")

// fresh calls serve if the user may change sign-in methods now, and otherwise returns errReauthenticate. It is used in
// forUser.
func (h *Handler) fresh(serve func(*visit) error) func(*visit) error {
	return func(v *visit) error {
		if !v.current.MayChangeFactors(h.Now()) {
			return errReauthenticate
		}
		return serve(v)
	}
}

// securityFrame returns the frame of a page of Settings, Security. It takes the notice for the page.
func (h *Handler) securityFrame(v *visit, title string) (ui.Frame, error) {
	notice, err := h.Sessions.TakeFlash(v.w, v.r)
	if err != nil {
		return ui.Frame{}, err
	}
	place, err := h.Place(v.r, v.current)
	return ui.Frame{
		Title:   title,
		Section: "security",
		Place:   place,
		Notice:  notice,
		Person:  person(v.current.User),
	}, err
}
