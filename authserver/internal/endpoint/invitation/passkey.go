package invitation

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/signin/loginstate"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/signin/webauthn"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/displayname"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/web"
)

// PasskeyDeps are the dependencies for creating accounts that have a passkey and no password.
type PasskeyDeps struct {
	Store interface {
		AcceptWithPasskey(
			ctx context.Context,
			o membership.Offer,
			user membership.NewUser,
			key passkey.Passkey,
			added, joined audit.Event,
		) error
	}
	RelyingParty *webauthn.RelyingParty
	Ceremonies   *loginstate.States
}

// A registration is stored with a challenge. The response is valid only for this invitation.
type registration struct {
	User       uuid.UUID       `json:"user"`
	Invitation uuid.UUID       `json:"invitation"`
	State      json.RawMessage `json:"state"`
}

// A refusal is the message that the script shows.
type refusal struct {
	Message string `json:"message"`
}

// nameOf returns the name in the form, or an error message for its field.
func nameOf(v visit) (name, note string) {
	name = strings.TrimSpace(v.form.Get("name"))
	if problem := displayname.Check(name, displayname.MaxLength); problem != "" {
		return name, problem
	}
	return name, ""
}

// PasskeyOptions serves POST /invitation/passkey/options, which the page's script sends.
func (h *Handler) PasskeyOptions() http.Handler {
	return h.Pages.SameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		form, ok := h.Pages.ReadForm(w, r)
		if !ok {
			return
		}
		v, err := h.visit(w, r, form.Get("token"), form)
		name, note := nameOf(v)
		switch {
		case errors.Is(err, membership.ErrNoInvitation):
			web.JSON(w, http.StatusNotFound, refusal{"This invitation is not valid."})
		case errors.Is(err, store.ErrUnavailable):
			w.Header().Set("Retry-After", "5")
			web.JSON(w, http.StatusServiceUnavailable,
				refusal{"The service is temporarily unavailable. Please try again."})
		case err != nil:
			h.failScript(w, r, err)
		case v.signedIn || v.tellsAccount():
			web.JSON(w, http.StatusConflict, refusal{"There is an account with this address. Open the page again."})
		case note != "":
			web.JSON(w, http.StatusBadRequest, refusal{note})
		default:
			h.sendChallenge(v, name)
		}
	}))
}

func (h *Handler) failScript(w http.ResponseWriter, r *http.Request, err error) {
	h.Log.ErrorContext(r.Context(), "invitation failed", "error", err)
	web.JSON(w, http.StatusInternalServerError, refusal{"Something went wrong on our side. Please try again."})
}

// sendChallenge stores a challenge and sends it to the script, unless the address has requested too many.
func (h *Handler) sendChallenge(v visit, name string) {
	if wait := h.Attempts.Begun(v.r.Context(), h.Proxies.ClientAddress(v.r)); wait > 0 {
		web.SetRateLimited(v.w.Header(), wait, session.BegunLimit(wait))
		web.JSON(v.w, http.StatusTooManyRequests,
			refusal{"Too many attempts from your network. Please try again in a few minutes."})
		return
	}
	user := workspace.User{ID: identity.New(), Email: v.offer.Email, Name: name}
	challenge, err := h.Passkeys.RelyingParty.BeginRegistration(user, nil)
	if err == nil {
		err = h.Passkeys.Ceremonies.Begin(v.r.Context(), loginstate.NewAccount,
			h.Passkeys.Ceremonies.BindToBrowser(v.w, v.r), challenge.Challenge, passkey.ChallengeLife,
			registration{User: user.ID, Invitation: v.offer.ID, State: challenge.State})
	}
	if err != nil {
		h.failScript(v.w, v.r, err)
		return
	}
	web.JSON(v.w, http.StatusOK, challenge.Options)
}

// CreateWithPasskey serves POST /invitation/passkey. The account has the invitation's address and no password.
func (h *Handler) CreateWithPasskey() http.Handler {
	return h.form(func(v visit) error {
		name, note := nameOf(v)
		switch {
		case v.signedIn:
			h.show(v, http.StatusConflict, func(page *view) { page.Problem = "You are signed in already." })
			return nil
		case v.tellsAccount():
			return membership.ErrAccountExists
		case note != "":
			h.refuse(v, http.StatusBadRequest, "The account was not created.", note, "")
			return nil
		}
		key, err := h.made(v, name)
		if errors.Is(err, webauthn.ErrRefused) {
			h.Log.InfoContext(v.r.Context(), "passkey refused", "reason", err.Error())
			h.refusePasskey(v)
			return nil
		}
		if err != nil {
			return err
		}
		user := membership.NewUser{ID: key.UserID, Name: name}
		added, joined := membership.EventsOf(v.offer, user, web.RequestID(v.r.Context()))
		err = h.Passkeys.Store.AcceptWithPasskey(v.r.Context(), v.offer, user, key, added, joined)
		if err != nil {
			return err
		}
		proof := session.Proof{Method: session.Passkey, PasskeyID: key.ID}
		by, event := session.Arrival(v.r, workspace.User{ID: user.ID, Email: v.offer.Email, Name: name}, proof,
			h.Proxies.ClientAddress(v.r))
		return h.arrive(v, by, event)
	})
}

func (h *Handler) refusePasskey(v visit) {
	h.refuse(v, http.StatusBadRequest, "The passkey was not accepted, and the account was not created. Please try "+
		"again.", "", "")
}

// made returns the passkey of a response to a challenge for this invitation at this browser. Its error is
// webauthn.ErrRefused if the response is not valid.
func (h *Handler) made(v visit, name string) (passkey.Passkey, error) {
	answer, err := webauthn.ParseCreation(v.form.Get("credential"))
	if err != nil {
		return passkey.Passkey{}, err
	}
	by, known := h.Passkeys.Ceremonies.BoundToBrowser(v.r)
	if !known {
		return passkey.Passkey{}, webauthn.ErrRefused
	}
	var begun registration
	found, err := h.Passkeys.Ceremonies.Take(v.r.Context(), loginstate.NewAccount, by, answer.Challenge(), &begun)
	if err != nil {
		return passkey.Passkey{}, err
	}
	if !found || begun.Invitation != v.offer.ID {
		return passkey.Passkey{}, webauthn.ErrRefused
	}
	user := workspace.User{ID: begun.User, Email: v.offer.Email, Name: name}
	key, err := h.Passkeys.RelyingParty.FinishRegistration(user, begun.State, answer)
	key.Name = session.DeviceName(v.r.UserAgent())
	return key, err
}
