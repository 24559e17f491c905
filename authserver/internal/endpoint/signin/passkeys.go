package signin

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/loginstate"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/displayname"
	"github.com/almonerhq/almoner/shared/contract/identity"
)

const passkeysPath = "/settings/passkeys"

// listPasskeys serves GET /settings/passkeys.
func (h *Handler) listPasskeys(v *visit) error {
	if err := h.requireUser(v, passkeysPath); err != nil {
		return err
	}
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

// requireChange reads the current user, who must have authenticated recently to change passkeys.
func (h *Handler) requireChange(v *visit) error {
	err := h.requireUser(v, passkeysPath)
	if err == nil && !v.current.MayChangeFactors(h.Now()) {
		err = errReauthenticate
	}
	return err
}

// addPasskeyOptions serves POST /settings/passkeys/options.
func (h *Handler) addPasskeyOptions(v *visit) error {
	if err := h.requireChange(v); err != nil {
		return err
	}
	has, err := h.Store.Passkeys(v.r.Context(), v.current.User.ID)
	if err != nil {
		return err
	}
	challenge, err := h.RelyingParty.BeginRegistration(v.current.User, has)
	if err != nil {
		return err
	}
	by := loginstate.BindToSignIn(v.current.SignInID)
	return h.sendChallenge(v, loginstate.AddPasskey, by, challenge, challenge.State)
}

// addPasskey serves POST /settings/passkeys. The challenge proves that the page belongs to this sign-in.
func (h *Handler) addPasskey(v *visit) error {
	if err := h.requireChange(v); err != nil {
		return err
	}
	name := strings.TrimSpace(v.form.Get("name"))
	if note := displayname.Check(name, passkey.MaxName); note != "" {
		return h.showPasskeys(v, http.StatusBadRequest, "", ui.Passkeys{Name: name, NameNote: note})
	}
	var stored json.RawMessage
	answer, err := h.takeCreation(v, loginstate.AddPasskey, loginstate.BindToSignIn(v.current.SignInID), &stored)
	var key passkey.Passkey
	if err == nil {
		key, err = h.finishCreation(v, v.current.User, stored, answer)
	}
	added := false
	if err == nil {
		key.Name = name
		event := v.current.Event(v.r.Context(), audit.PasskeyAdded, "passkey:"+key.ID.String())
		event.Detail = map[string]any{"name": name, "address": h.address(v).String()}
		added, err = h.Store.AddPasskey(v.r.Context(), key, event)
	}
	switch {
	case errors.Is(err, errNotAccepted), err == nil && !added:
		problem := "The passkey was not added. Please try again."
		return h.showPasskeys(v, http.StatusBadRequest, problem, ui.Passkeys{Name: name})
	case err != nil:
		return err
	}
	return h.done(v, ui.LocalPath(v.form.Get("return"), passkeysPath), "The passkey "+name+" was added.")
}

// removePasskey serves POST /settings/passkeys/remove.
func (h *Handler) removePasskey(v *visit) error {
	if err := h.requireUser(v, passkeysPath); err != nil {
		return err
	}
	if !keyFits(h.passkeyForms, v) {
		return h.tell(v, outdated(passkeysPath))
	}
	if !v.current.MayChangeFactors(h.Now()) {
		return errReauthenticate
	}
	outcome := passkey.NoSuchPasskey
	if id, err := identity.Parse(v.form.Get("id")); err == nil {
		event := v.current.Event(v.r.Context(), audit.PasskeyRemoved, "passkey:"+id.String())
		event.Detail = map[string]any{"address": h.address(v).String()}
		outcome, err = h.Store.RemovePasskey(v.r.Context(), v.current.User.ID, id, h.issuer(), event)
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
