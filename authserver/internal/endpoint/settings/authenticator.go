package settings

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"strings"
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
	Status  authenticator.Status
	Confirm bool         // the user must authenticate again first
	Setup   string       // the new secret, sealed
	Key32   string       // the new secret, for users who type it
	QR      template.URL // the new secret, as a data URL of an image
	Codes   []string     // new recovery codes, which are shown once
	Sealed  string       // the same codes, sealed, for the form that downloads them
	Made    time.Time    // when the codes were made
	Return  string       // local path to redirect to after an app was set up, or ""
	Again   string       // local path of the reauthentication that returns to this page
}

// A setup is a new secret that no code has confirmed. It is sealed into the form and not stored.
type setup struct {
	User    uuid.UUID            `json:"u"`
	Secret  authenticator.Secret `json:"s"`
	Expires time.Time            `json:"x"`
}

// authenticator reads the view of the page and its forms.
func (r *request) authenticator() (*authenticatorView, error) {
	status, err := r.Store.Authenticator(r.ctx(), r.user.User.ID)
	next, here := ui.LocalPath(r.http.FormValue("return"), ""), r.section.Path()
	if next != "" {
		here += "?return=" + url.QueryEscape(next)
	}
	return &authenticatorView{
		Status:  status,
		Return:  next,
		Again:   "/login/again?return=" + url.QueryEscape(here),
		Confirm: !r.user.MayChangeFactors(r.Now()),
	}, err
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
		return r.done(nil, "Nothing was changed. Please start again.")
	}
	step, valid := fresh.Secret.Check(r.form.Get("code"), s.Now(), 0)
	if !valid {
		r.reject("new app's code", "")
		return s.showSetup(r, view, fresh)
	}
	codes, hashes, err := authenticator.NewRecoveryCodes(s.Random)
	if err != nil {
		return err
	}
	event := r.addressEvent(audit.AuthenticatorAdded)
	err = s.Store.AddAuthenticator(r.ctx(), r.user.User.ID, fresh.Secret, step, hashes, event)
	if err != nil {
		return r.done(err, "")
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
	view.Status.Active, view.Status.RecoveryCodes, view.Made = true, len(codes), r.Now()
	for _, code := range codes {
		view.Codes = append(view.Codes, code.Reveal())
	}
	content, err := json.Marshal(shownCodes{r.user.User.ID, view.Codes, view.Made})
	if err != nil {
		return err
	}
	view.Sealed = r.codes.Seal(content)
	return r.show("authenticator", view)
}

// shownCodes are new recovery codes. They are sealed into the form that downloads them, and stored only as hashes.
type shownCodes struct {
	User  uuid.UUID `json:"u"`
	Codes []string  `json:"c"`
	Made  time.Time `json:"m"`
}

// downloadCodes takes codes: it sends the codes of the page back as a file, which works without scripts.
func (s *Settings) downloadCodes(r *request) error {
	var shown shownCodes
	content, err := s.codes.Open(r.form.Get("codes"))
	late := err != nil || json.Unmarshal(content, &shown) != nil || shown.User != r.user.User.ID ||
		s.Now().After(shown.Made.Add(setupLife))
	if late {
		return r.done(nil, "Nothing was downloaded: the page with the codes was too old. If you did not store them, "+
			"replace them.")
	}
	header := r.w.Header()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("Content-Disposition", `attachment; filename="recovery-codes.txt"`)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	_, _ = fmt.Fprintf(r.w, "Recovery codes of %s at %s\r\nMade on %s\r\n\r\n%s\r\n\r\n%s\r\n",
		r.user.User.Email, s.Host, shown.Made.UTC().Format("2 January 2006"),
		strings.Join(shown.Codes, "\r\n"), "Each code signs you in once if you do not have your app.")
	return nil
}

func (s *Settings) replaceCodes(r *request, view *authenticatorView) error {
	if view.Confirm {
		return r.done(nil, confirmFirst)
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
	return r.done(err, "Nothing was changed. You have no authenticator app.")
}

func (s *Settings) removeAuthenticator(r *request) error {
	if !r.user.MayChangeFactors(s.Now()) {
		return r.done(nil, confirmFirst)
	}
	event := r.addressEvent(audit.AuthenticatorRemoved)
	removed, err := s.Store.RemoveAuthenticator(r.ctx(), r.user.User.ID, event)
	r.back = securitySection.Path()
	if err == nil && !removed {
		return r.done(nil, "You have no authenticator app.")
	}
	return r.done(err, "Your authenticator app was removed.")
}
