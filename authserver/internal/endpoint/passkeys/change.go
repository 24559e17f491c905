package passkeys

import (
	"errors"
	"net/http"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/loginstate"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/signin/webauthn"
	"github.com/almonerhq/almoner/shared/displayname"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/web"
)

// AddOptions serves POST /settings/passkeys/options. It accepts requests from the server's own origin only.
func (h *Handler) AddOptions() http.Handler {
	return h.script(pagePath, func(w http.ResponseWriter, r *http.Request, current session.CurrentUser) error {
		if !current.MayChangeFactors(h.Now()) {
			sendOn(w, again(pagePath))
			return nil
		}
		has, err := h.Store.Passkeys(r.Context(), current.User.ID)
		if err != nil {
			return err
		}
		challenge, err := h.RelyingParty.BeginRegistration(current.User, has)
		if err != nil {
			return err
		}
		h.sendChallenge(w, r, loginstate.AddPasskey, loginstate.BindToSignIn(current.SignInID), challenge)
		return nil
	})
}

// sendOn makes the script open another page.
func sendOn(w http.ResponseWriter, path string) {
	web.JSON(w, http.StatusForbidden, refusal{Message: "Confirm your identity first.", Next: path})
}

// Add serves POST /settings/passkeys. It accepts requests from the server's own origin only. The challenge proves that
// the page belongs to this sign-in.
func (h *Handler) Add() http.Handler {
	return h.form(pagePath, func(v request) error {
		if !v.current.MayChangeFactors(h.Now()) {
			goOn(v.w, again(pagePath))
			return nil
		}
		name := strings.TrimSpace(v.form.Get("name"))
		if note := displayname.Check(name, passkey.MaxName); note != "" {
			return h.show(v.w, v.r, v.current, http.StatusBadRequest, ui.Passkeys{
				Name:     name,
				NameNote: note,
				Return:   ui.LocalPath(v.form.Get("return"), ""),
			})
		}
		made, err := h.made(v)
		if errors.Is(err, errNotAccepted) {
			return h.refuseAdding(v, name)
		}
		if err != nil {
			return err
		}
		made.Name = name
		event := v.current.Event(v.r.Context(), audit.PasskeyAdded, "passkey:"+made.ID.String())
		event.Detail = map[string]any{"name": name, "address": h.Proxies.ClientAddress(v.r).String()}
		added, err := h.Store.AddPasskey(v.r.Context(), made, event)
		if err != nil {
			return err
		}
		if !added {
			return h.refuseAdding(v, name)
		}
		return h.done(v, ui.LocalPath(v.form.Get("return"), pagePath), "The passkey "+name+" was added.")
	})
}

func (h *Handler) refuseAdding(v request, name string) error {
	page := ui.Passkeys{Name: name, Return: ui.LocalPath(v.form.Get("return"), "")}
	page.Problem = "The passkey was not added. Please try again."
	return h.show(v.w, v.r, v.current, http.StatusBadRequest, page)
}

// made returns the new passkey of a response to a challenge. Its error is errNotAccepted if the response is not valid.
func (h *Handler) made(v request) (passkey.Passkey, error) {
	ctx := v.r.Context()
	answer, err := webauthn.ParseCreation(v.form.Get("credential"))
	if err != nil {
		return passkey.Passkey{}, h.notAccepted(ctx, err.Error())
	}
	stored, found, err := h.take(
		ctx,
		loginstate.AddPasskey,
		loginstate.BindToSignIn(v.current.SignInID),
		answer.Challenge(),
	)
	if err != nil {
		return passkey.Passkey{}, err
	}
	if !found {
		return passkey.Passkey{}, h.notAccepted(ctx, "its challenge is not one that waits for an answer here")
	}
	made, err := h.RelyingParty.FinishRegistration(v.current.User, stored, answer)
	if errors.Is(err, webauthn.ErrRefused) {
		return passkey.Passkey{}, h.notAccepted(ctx, err.Error())
	}
	return made, err
}

// Remove serves POST /settings/passkeys/remove. It accepts requests from the server's own origin only.
func (h *Handler) Remove() http.Handler {
	return h.form(pagePath, func(v request) error {
		if !h.holds(v.form.Get("key"), v.current) {
			h.Pages.ShowError(v.w, v.r, outdated())
			return nil
		}
		if !v.current.MayChangeFactors(h.Now()) {
			goOn(v.w, again(pagePath))
			return nil
		}
		id, err := identity.Parse(v.form.Get("id"))
		if err != nil {
			return h.done(v, pagePath, "The passkey was already removed.")
		}
		event := v.current.Event(v.r.Context(), audit.PasskeyRemoved, "passkey:"+id.String())
		event.Detail = map[string]any{"address": h.Proxies.ClientAddress(v.r).String()}
		outcome, err := h.Store.RemovePasskey(v.r.Context(), v.current.User.ID, id, h.Issuer, event)
		switch {
		case err != nil:
			return err
		case outcome == passkey.OnlyWayIn:
			page := ui.Passkeys{}
			page.Problem = "You need this passkey to sign in. Add another passkey before you remove it."
			return h.show(v.w, v.r, v.current, http.StatusConflict, page)
		case outcome == passkey.NoSuchPasskey:
			return h.done(v, pagePath, "The passkey was already removed.")
		}
		return h.done(v, pagePath, "The passkey was removed.")
	})
}

// done redirects to a page that shows notice.
func (h *Handler) done(v request, path, notice string) error {
	if err := h.Sessions.Flash(v.w, v.r, notice); err != nil {
		return err
	}
	goOn(v.w, path)
	return nil
}
