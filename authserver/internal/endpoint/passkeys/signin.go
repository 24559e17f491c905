package passkeys

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/loginstate"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/signin/webauthn"
	"github.com/almonerhq/almoner/shared/web"
)

// SignInOptions serves POST /login/passkey/options. It accepts requests from the server's own origin only.
func (h *Handler) SignInOptions() http.Handler {
	return h.Pages.SameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		challenge, err := h.RelyingParty.BeginLogin()
		if err != nil {
			h.failScript(w, r, err)
			return
		}
		h.sendChallenge(w, r, loginstate.PasskeySignIn, h.Ceremonies.BindToBrowser(w, r), challenge)
	}))
}

// SignIn serves POST /login/passkey. It accepts requests from the server's own origin only.
func (h *Handler) SignIn() http.Handler {
	return h.Pages.SameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		form, ok := h.Pages.ReadForm(w, r)
		if !ok {
			return
		}
		next := ui.LocalPath(form.Get("return"), "")
		user, proof, err := h.signedBy(r, form.Get("credential"))
		if err == nil {
			by, event := session.Arrival(r, user, proof, h.Proxies.ClientAddress(r))
			err = h.Sessions.Begin(w, r, by, event)
		}
		if errors.Is(err, errNotAccepted) || errors.Is(err, session.ErrProofInvalid) {
			problem := problemOf(err, "Please try again, or sign in another way.")
			if _, known := h.Ceremonies.BoundToBrowser(r); !known {
				problem = ui.NoCookie
			}
			h.Pages.Show(w, r, http.StatusBadRequest, &ui.Login{
				Frame: ui.Frame{
					Title:   "Sign in",
					Problem: problem,
				},
				Return: next, Application: h.Application(r.Context(), next),
			})
			return
		}
		if err != nil {
			h.fail(w, r, err)
			return
		}
		goOn(w, ui.LocalPath(next, home))
	}))
}

func (h *Handler) signedBy(r *http.Request, credential string) (workspace.User, session.Proof, error) {
	by, known := h.Ceremonies.BoundToBrowser(r)
	if !known {
		return workspace.User{}, session.Proof{}, errNotAccepted
	}
	return h.check(r, loginstate.PasskeySignIn, by, credential)
}

// AgainOptions serves POST /login/again/passkey/options. It accepts requests from the server's own origin only.
func (h *Handler) AgainOptions() http.Handler {
	return h.script(home, func(w http.ResponseWriter, r *http.Request, current session.CurrentUser) error {
		challenge, err := h.RelyingParty.BeginLogin()
		if err != nil {
			return err
		}
		h.sendChallenge(w, r, loginstate.PasskeyReauth, loginstate.BindToSignIn(current.SignInID), challenge)
		return nil
	})
}

// Again serves POST /login/again/passkey. It accepts requests from the server's own origin only. The passkey must
// belong to the user who is signed in.
func (h *Handler) Again() http.Handler {
	return h.form(home, func(v request) error {
		next := ui.LocalPath(v.form.Get("return"), home)
		user, proof, err := h.check(
			v.r,
			loginstate.PasskeyReauth,
			loginstate.BindToSignIn(v.current.SignInID),
			v.form.Get("credential"),
		)
		if err == nil && user.ID != v.current.User.ID {
			err = errNotAccepted
		}
		if err == nil {
			event := v.current.Event(v.r.Context(), audit.SignInProved, "sign_in:"+v.current.SignInID.String())
			event.Detail = map[string]any{"method": session.Passkey, "address": h.Proxies.ClientAddress(v.r).String()}
			err = h.Sessions.Reauthenticated(v.w, v.r, v.current, proof, event)
		}
		if errors.Is(err, errNotAccepted) || errors.Is(err, session.ErrProofInvalid) {
			words := problemOf(err, "Please try again, or use another method.")
			if err := h.Sessions.Flash(v.w, v.r, words); err != nil {
				return err
			}
			goOn(v.w, again(next))
			return nil
		}
		if err != nil {
			return err
		}
		goOn(v.w, next)
		return nil
	})
}

// errNotAccepted means that a response does not authenticate the user. The cause is in the log.
var errNotAccepted = errors.New("the passkey is not accepted")

// errChanged is an errNotAccepted that remains: the passkey's counter or its backup flag does not fit what is stored.
var errChanged = fmt.Errorf("%w: it has changed", errNotAccepted)

// problemOf says on the page why a passkey was not accepted, and what to do; otherwise is the advice if the cause is
// not known.
func problemOf(err error, otherwise string) string {
	if errors.Is(err, errChanged) {
		return "This passkey has changed and no longer works here. Sign in another way, remove it in Settings, " +
			"Security, and add it again."
	}
	return "The passkey was not accepted. " + otherwise
}

// check returns the user whose passkey answered a challenge. Its error is errNotAccepted if the response is not valid;
// other errors are not the caller's fault.
func (h *Handler) check(
	r *http.Request, purpose loginstate.Purpose, by loginstate.Binding, credential string,
) (workspace.User, session.Proof, error) {
	ctx := r.Context()
	answer, err := webauthn.ParseSignature(credential)
	if err != nil {
		return workspace.User{}, session.Proof{}, h.notAccepted(ctx, err.Error())
	}
	stored, found, err := h.take(ctx, purpose, by, answer.Challenge())
	if err != nil {
		return workspace.User{}, session.Proof{}, err
	}
	if !found {
		return workspace.User{}, session.Proof{}, h.notAccepted(
			ctx,
			"its challenge is not one that waits for an answer here",
		)
	}
	key, user, known, err := h.Store.PasskeyByCredential(ctx, answer.CredentialID())
	switch {
	case err != nil:
		return workspace.User{}, session.Proof{}, err
	case !known:
		return workspace.User{}, session.Proof{}, h.notAccepted(ctx, "the credential is not known")
	case user.DisabledAt != nil:
		return workspace.User{}, session.Proof{}, h.notAccepted(ctx, "the user is disabled")
	}
	use, err := h.RelyingParty.FinishLogin(user, key, stored, answer)
	if errors.Is(err, webauthn.ErrChanged) {
		_ = h.notAccepted(ctx, err.Error())
		return workspace.User{}, session.Proof{}, errChanged
	}
	if errors.Is(err, webauthn.ErrRefused) {
		return workspace.User{}, session.Proof{}, h.notAccepted(ctx, err.Error())
	}
	if err != nil {
		return workspace.User{}, session.Proof{}, err
	}
	good, err := h.Store.UsePasskey(ctx, key.ID, use, audit.Event{
		UserID:    &user.ID,
		Actor:     "anonymous",
		Action:    audit.PasskeyStopped,
		Subject:   "passkey:" + key.ID.String(),
		RequestID: web.RequestID(ctx),
		Detail:    map[string]any{"name": key.Name, "reason": "copied", "address": h.Proxies.ClientAddress(r).String()},
	})
	if err == nil && !good {
		_ = h.notAccepted(ctx, "its counter did not go up: it may be a copy")
		err = errChanged
	}
	return user, session.Proof{Method: session.Passkey, PasskeyID: key.ID}, err
}

func (h *Handler) notAccepted(ctx context.Context, why string) error {
	h.Log.InfoContext(ctx, "passkey refused", "reason", why)
	return errNotAccepted
}
