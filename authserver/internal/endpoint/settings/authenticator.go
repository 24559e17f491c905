package settings

import (
	"encoding/base64"
	"encoding/json"
	"html/template"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// setupLife is how long a new secret can be confirmed, from when the page with its QR code is shown.
const setupLife = 30 * time.Minute

// An authenticatorView is Settings → Security → Authenticator app.
type authenticatorView struct {
	page
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

// A setup is a new secret that no code has confirmed. It is sealed into the form and not stored.
type setup struct {
	User    uuid.UUID            `json:"u"`
	Secret  authenticator.Secret `json:"s"`
	Expires time.Time            `json:"x"`
}

// onApp returns the handler of the page, or of one of its forms, that gets the view.
func (s *Settings) onApp(handle func(*request, *authenticatorView) error) handler {
	return func(r *request) error {
		status, err := s.Store.Authenticator(r.ctx(), r.user.User.ID)
		if err != nil {
			return err
		}
		next, here := ui.LocalPath(r.http.FormValue("return"), ""), r.section.Path()
		if next != "" {
			here += "?return=" + url.QueryEscape(next)
		}
		return handle(r, &authenticatorView{
			Status:  status,
			Return:  next,
			Again:   "/login/again?return=" + url.QueryEscape(here),
			Confirm: !r.user.MayChangeFactors(s.Now()),
		})
	}
}

func (s *Settings) showApp(r *request, view *authenticatorView) error {
	if view.Confirm || view.Status.Active {
		return r.show("authenticator", view)
	}
	secret, err := authenticator.NewSecret(s.Random)
	if err != nil {
		return err
	}
	return s.showSetup(r, view, setup{r.user.User.ID, secret, s.Now().Add(setupLife)})
}

// showSetup shows the page with a new secret.
func (s *Settings) showSetup(r *request, view *authenticatorView, fresh setup) error {
	content, err := json.Marshal(fresh)
	if err != nil {
		return err
	}
	image, err := fresh.Secret.QRCode(s.Host, r.user.User.Email)
	if err != nil {
		return err
	}
	view.Setup, view.Key32 = s.setups.Seal(content), fresh.Secret.Text()
	view.QR = template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(image))
	return r.show("authenticator", view)
}

// addAuthenticator takes setup and code.
func (s *Settings) addAuthenticator(r *request, view *authenticatorView) error {
	fresh, ok := s.openSetup(r)
	if view.Confirm || view.Status.Active || !ok {
		return r.done("Nothing was changed. Please start again.")
	}
	step, valid := fresh.Secret.Check(r.form.Get("code"), s.Now(), 0)
	if !valid {
		view.CodeNote = "The code is incorrect. Check that the time of your phone is right, and enter the next code."
		r.status = http.StatusBadRequest
		return s.showSetup(r, view, fresh)
	}
	codes, hashes, err := authenticator.NewRecoveryCodes(s.Random)
	if err != nil {
		return err
	}
	event := r.addressEvent(audit.AuthenticatorAdded)
	err = s.Store.AddAuthenticator(r.ctx(), r.user.User.ID, fresh.Secret, step, hashes, event)
	if err != nil {
		return r.outcome(err, "", refusals{authenticator.ErrExists: "An app is set up already."})
	}
	return r.showCodes(view, codes)
}

func (s *Settings) openSetup(r *request) (opened setup, ok bool) {
	content, err := s.setups.Open(r.form.Get("setup"))
	if err != nil || json.Unmarshal(content, &opened) != nil {
		return setup{}, false
	}
	return opened, opened.User == r.user.User.ID && s.Now().Before(opened.Expires)
}

// showCodes shows new recovery codes, this once.
func (r *request) showCodes(view *authenticatorView, codes []credential.Secret) error {
	view.Status.Active, view.Status.RecoveryCodes = true, len(codes)
	for _, code := range codes {
		view.Codes = append(view.Codes, code.Reveal())
	}
	return r.show("authenticator", view)
}

func (s *Settings) replaceCodes(r *request, view *authenticatorView) error {
	if view.Confirm {
		return r.done(confirmFirst)
	}
	codes, hashes, err := authenticator.NewRecoveryCodes(s.Random)
	if err != nil {
		return err
	}
	event := r.addressEvent(audit.RecoveryCodesReplaced)
	replaced, err := s.Store.ReplaceRecoveryCodes(r.ctx(), r.user.User.ID, hashes, event)
	if err == nil && replaced {
		return r.showCodes(view, codes)
	}
	return r.outcome(err, "Nothing was changed. You have no authenticator app.", nil)
}

func (s *Settings) removeAuthenticator(r *request) error {
	if !r.user.MayChangeFactors(s.Now()) {
		return r.done(confirmFirst)
	}
	event := r.addressEvent(audit.AuthenticatorRemoved)
	removed, err := s.Store.RemoveAuthenticator(r.ctx(), r.user.User.ID, event)
	if err == nil && !removed {
		return r.doneAt(securitySection.Path(), "You have no authenticator app.")
	}
	return r.outcomeAt(securitySection.Path(), err, "Your authenticator app was removed.", nil)
}
