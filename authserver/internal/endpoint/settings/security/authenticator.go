package security

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/shared/credential"
)

// authenticatorSection is the page of the authenticator app, for links back to it.
var authenticatorSection = ui.Section{Name: "security/authenticator", Title: "Authenticator app"}

// setupLife is how long a new secret can be confirmed, from when the page with its QR code is shown.
const setupLife = 30 * time.Minute

// An authenticatorView is Settings → Security → Authenticator app.
type authenticatorView struct {
	ui.Frame
	Key      string
	Status   authenticator.Status
	Confirm  bool         // the user must authenticate again first
	Setup    string       // the new secret, sealed
	Key32    string       // the new secret, for users who type it
	QR       template.URL // the new secret, as a data URL of an image
	CodeNote string       // the error of this field
	Codes    []string     // new recovery codes, which are shown once
	Return   string       // local path to redirect to after an app was set up, or ""
	Again    string       // local path of the reauthentication that returns to this page
}

func (*authenticatorView) Template() string { return "authenticator" }

// A setup is a new secret that no code has confirmed. It is sealed into the form and not stored.
type setup struct {
	User    uuid.UUID            `json:"u"`
	Secret  authenticator.Secret `json:"s"`
	Expires time.Time            `json:"x"`
}

// showAuthenticator serves GET /settings/security/authenticator.
func (h *Handler) showAuthenticator() http.Handler {
	return h.Page(func(v *settings.Request) error {
		view, err := h.authenticatorView(v)
		if err != nil {
			return err
		}
		if !view.Confirm && !view.Status.Active {
			secret, err := authenticator.NewSecret(h.Random)
			if err != nil {
				return err
			}
			if err := h.fillSetup(v, view, setup{v.Current.User.ID, secret, h.Now().Add(setupLife)}); err != nil {
				return err
			}
		}
		h.Pages.Show(v.W, v.R, http.StatusOK, view)
		return nil
	})
}

func (h *Handler) authenticatorView(v *settings.Request) (*authenticatorView, error) {
	status, err := h.Store.Authenticator(v.R.Context(), v.Current.User.ID)
	if err != nil {
		return nil, err
	}
	frame, err := h.Frame(v, Section)
	if err != nil {
		return nil, err
	}
	frame.Title = authenticatorSection.Title
	next, here := ui.LocalPath(v.R.FormValue("return"), ""), authenticatorSection.Path()
	if next != "" {
		here += "?return=" + url.QueryEscape(next)
	}
	return &authenticatorView{
		Frame:   frame,
		Key:     h.NewKey(v),
		Status:  status,
		Return:  next,
		Again:   "/login/again?return=" + url.QueryEscape(here),
		Confirm: !v.Current.MayChangeFactors(h.Now()),
	}, nil
}

func (h *Handler) fillSetup(v *settings.Request, view *authenticatorView, s setup) error {
	content, err := json.Marshal(s)
	if err != nil {
		return err
	}
	image, err := s.Secret.QRCode(h.Host, v.Current.User.Email)
	if err != nil {
		return err
	}
	view.Setup, view.Key32 = h.setups.Seal(content), s.Secret.Text()
	view.QR = template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(image))
	return nil
}

// addAuthenticator serves POST /settings/security/authenticator.
func (h *Handler) addAuthenticator() http.Handler {
	return h.Form(authenticatorSection, func(v *settings.Request) error {
		view, err := h.authenticatorView(v)
		if err != nil {
			return err
		}
		s, ok := h.openSetup(v)
		if view.Confirm || view.Status.Active || !ok {
			return h.Done(v, authenticatorSection.Path(), "Nothing was changed. Please start again.")
		}
		step, valid := s.Secret.Check(v.Form.Get("code"), h.Now(), 0)
		if !valid {
			view.CodeNote = "The code is incorrect. Check that the time of your phone is right, and enter the next " +
				"code."
			if err := h.fillSetup(v, view, s); err != nil {
				return err
			}
			h.Pages.Show(v.W, v.R, http.StatusBadRequest, view)
			return nil
		}
		codes, hashes, err := authenticator.NewRecoveryCodes(h.Random)
		if err != nil {
			return err
		}
		err = h.Store.AddAuthenticator(v.R.Context(), v.Current.User.ID, s.Secret, step, hashes, h.ownEvent(
			v,
			audit.AuthenticatorAdded,
		))
		if errors.Is(err, authenticator.ErrExists) {
			return h.Done(v, authenticatorSection.Path(), "An app is set up already.")
		}
		if err != nil {
			return err
		}
		return h.showCodes(v, view, codes)
	})
}

func (h *Handler) openSetup(v *settings.Request) (setup, bool) {
	content, err := h.setups.Open(v.Form.Get("setup"))
	if err != nil {
		return setup{}, false
	}
	var s setup
	if err := json.Unmarshal(content, &s); err != nil {
		return setup{}, false
	}
	return s, s.User == v.Current.User.ID && h.Now().Before(s.Expires)
}

// showCodes shows new recovery codes, this once.
func (h *Handler) showCodes(v *settings.Request, view *authenticatorView, codes []credential.Secret) error {
	view.Status.Active, view.Status.RecoveryCodes = true, len(codes)
	for _, code := range codes {
		view.Codes = append(view.Codes, code.Reveal())
	}
	h.Pages.Show(v.W, v.R, http.StatusOK, view)
	return nil
}

// replaceCodes serves POST /settings/security/authenticator/codes.
func (h *Handler) replaceCodes() http.Handler {
	return h.Form(authenticatorSection, func(v *settings.Request) error {
		view, err := h.authenticatorView(v)
		if err != nil {
			return err
		}
		if view.Confirm {
			return h.Done(v, authenticatorSection.Path(), "Nothing was changed. Confirm your identity first.")
		}
		codes, hashes, err := authenticator.NewRecoveryCodes(h.Random)
		if err != nil {
			return err
		}
		event := h.ownEvent(v, audit.RecoveryCodesReplaced)
		replaced, err := h.Store.ReplaceRecoveryCodes(v.R.Context(), v.Current.User.ID, hashes, event)
		if err != nil {
			return err
		}
		if !replaced {
			return h.Done(v, authenticatorSection.Path(), "Nothing was changed. You have no authenticator app.")
		}
		return h.showCodes(v, view, codes)
	})
}

// removeAuthenticator serves POST /settings/security/authenticator/remove.
func (h *Handler) removeAuthenticator() http.Handler {
	return h.Form(authenticatorSection, func(v *settings.Request) error {
		if !v.Current.MayChangeFactors(h.Now()) {
			return h.Done(v, authenticatorSection.Path(), "Nothing was changed. Confirm your identity first.")
		}
		event := h.ownEvent(v, audit.AuthenticatorRemoved)
		removed, err := h.Store.RemoveAuthenticator(v.R.Context(), v.Current.User.ID, event)
		if err != nil {
			return err
		}
		if !removed {
			return h.Done(v, Section.Path(), "You have no authenticator app.")
		}
		return h.Done(v, Section.Path(), "Your authenticator app was removed.")
	})
}

// ownEvent returns an audit event about the user's own account.
func (h *Handler) ownEvent(v *settings.Request, action audit.Action) audit.Event {
	return v.Event(nil, action, "user:"+v.Current.User.ID.String(), map[string]any{
		"address": h.Proxies.ClientAddress(v.R).String(),
	})
}
