package settings

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A securityView is Settings → Security: the user's sign-ins, personal access tokens of every workspace, and recent
// events.
type securityView struct {
	page
	SignIns  []session.SignIn
	This     uuid.UUID // the sign-in of this browser
	Browsers listPage  // of the sign-ins
	Tokens   []pat.TokenInWorkspace
	List     listPage // of the tokens
	Events   []eventRow
	HasApp   bool        // the user has an authenticator app
	Mails    []mail.Kind // that the user can turn off; empty if the deployment sends no mail
	Unwanted []mail.Kind
}

// Wants reports whether the user gets mails of a kind.
func (v *securityView) Wants(k mail.Kind) bool { return !slices.Contains(v.Unwanted, k) }

// Device returns the display name of a browser.
func (*securityView) Device(s session.SignIn) string { return session.DeviceName(s.UserAgent) }

const recentEvents = 30

func (s *Settings) showSecurity(r *request) error {
	user := r.user.User.ID
	view := &securityView{This: r.user.SignInID, HasApp: read(r, s.Store.Authenticator, user).Active}
	view.SignIns, view.Browsers = listing[session.SignIn]{
		Of:        "browsers",
		Parameter: "browsers",
		First:     func(s session.SignIn) bool { return s.ID == view.This },
	}.Select(r, read(r, s.Store.SignInsOf, user))
	tokens := listing[pat.TokenInWorkspace]{Of: "tokens", Parameter: "tokens"}
	view.Tokens, view.List = tokens.Select(r, read(r, s.Store.ActiveTokens, user))
	latest := func(ctx context.Context, user uuid.UUID) ([]audit.Entry, error) {
		return s.Store.EventsOfUser(ctx, user, recentEvents)
	}
	for _, e := range read(r, latest, user) {
		view.Events = append(view.Events, eventView(e, &user))
	}
	if s.Members.Mailed() {
		view.Mails, view.Unwanted = mail.OptionalKinds(), read(r, s.Store.UnwantedMails, user)
	}
	r.offerPasskey(&view.Frame)
	return r.show("security", view)
}

// chooseMails takes mail: the kinds that are not ticked are turned off. The page calls mails notifications.
func (s *Settings) chooseMails(r *request) error {
	ticked := func(k mail.Kind) bool { return slices.Contains(r.form["mail"], string(k)) }
	unwanted := slices.DeleteFunc(mail.OptionalKinds(), ticked)
	event := r.accountEvent(audit.UserMailsChanged, map[string]any{"unwanted": unwanted})
	err := s.Store.SetUnwantedMails(r.ctx(), r.user.User.ID, unwanted, event)
	return r.done(err, "Your choice of mails was saved.")
}

// signOut takes id and ends one other sign-in of the user.
func (s *Settings) signOut(r *request) error {
	if r.id() == uuid.Nil {
		return r.done(nil, "The browser is no longer signed in.")
	}
	event := r.event(nil, audit.SignInEnded, "sign_in:"+r.id().String(), nil)
	err := s.Store.EndSignIn(r.ctx(), r.user.User.ID, r.id(), event)
	return r.done(err, "The browser was signed out.")
}

func (s *Settings) signOutOthers(r *request) error {
	event := r.accountEvent(audit.SignInOthersEnded, nil)
	ended, err := s.Store.EndOtherSignIns(r.ctx(), r.user.User.ID, r.user.SignInID, event)
	if ended == 1 {
		return r.done(err, "1 other browser was signed out.")
	}
	return r.done(err, strconv.FormatInt(ended, 10)+" other browsers were signed out.")
}

// A passwordView is Settings → Security → Password. It never has a password.
type passwordView struct {
	page
	HasPassword bool
	Confirm     bool // the user has no password and must authenticate again first
	Fresh       bool // the user may remove the password now
	OtherMethod bool // the user can sign in without the password
	EndOthers   bool
}

// password reads the view of the page and its forms.
func (r *request) password() (*passwordView, error) {
	_, hash, _, err := r.Store.UserByID(r.ctx(), r.user.User.ID)
	if err != nil {
		return nil, err
	}
	another, err := r.otherMethod()
	return &passwordView{
		OtherMethod: another,
		HasPassword: hash != "",
		EndOthers:   true,
		// The current password in the form is as good as a recent authentication, but no second factor.
		Confirm: r.user.SecondFactor.MustConfirm() || hash == "" && !r.user.Fresh(r.Now()),
		Fresh:   r.user.MayChangeFactors(r.Now()),
	}, err
}

func (s *Settings) showPassword(r *request, view *passwordView) error {
	return r.show("password", view)
}

// otherMethod reports whether the user has a way to sign in besides the password.
func (r *request) otherMethod() (bool, error) {
	if r.Passkeys {
		has, err := r.Store.HasPasskey(r.ctx(), r.user.User.ID)
		if has || err != nil {
			return has, err
		}
	}
	if r.Issuer == "" {
		return false, nil
	}
	_, linked, err := r.Store.IdentitySince(r.ctx(), r.user.User.ID, r.Issuer)
	return linked, err
}

// changePassword takes password, new-password and end-others.
func (s *Settings) changePassword(r *request, view *passwordView) (err error) {
	view.EndOthers = r.form.Get("end-others") != ""
	chosen := credential.Secret(r.form.Get("new-password"))
	if view.HasPassword && r.form.Get("password") == "" {
		r.reject("current password", "Enter your current password.")
	}
	if note := password.CheckForm(chosen); note != "" {
		r.reject("new password", note)
	}
	if r.rejected(passwordKept) || view.Confirm {
		r.status = http.StatusBadRequest
		return s.showPassword(r, view)
	}
	change := password.Change{
		UserID:    r.user.User.ID,
		SignInID:  r.user.SignInID,
		EndOthers: view.EndOthers,
		Device:    r.device(),
		Address:   r.address(),
	}
	if view.HasPassword {
		if change.Current, err = s.currentPassword(r, view); err != nil {
			return err
		}
	}
	caller := session.Caller{Email: r.user.User.Email, Address: s.Proxies.ClientAddress(r.http), Known: true}
	hash, note, err := password.Choose(r.ctx(), s.Passwords, caller, chosen, r.user.User.Name, r.user.User.Email)
	if err != nil {
		return s.refuseBusy(r, view, err)
	}
	if note != "" {
		return s.showPassword(r.refuse(http.StatusBadRequest, passwordKept, problemOf("new password", note)), view)
	}
	change.Hash = hash
	err = s.Store.ChangePassword(r.ctx(), change, r.accountEvent(audit.UserPasswordChanged,
		map[string]any{"address": change.Address, "others_ended": change.EndOthers}))
	if errors.Is(err, session.ErrProofInvalid) {
		wrong := problemOf("current password", wrongPassword)
		return s.showPassword(r.refuse(http.StatusBadRequest, passwordKept, wrong), view)
	}
	r.back = securitySection.Path()
	return r.done(err, "Your password was changed.")
}

// currentPassword checks the current password in the form. It returns errAnswered if it has written the response.
func (s *Settings) currentPassword(r *request, view *passwordView) (session.Proof, error) {
	typed := credential.Secret(r.form.Get("password"))
	user, result, err := s.Passwords.Verify(r.ctx(), r.user.User.Email, typed, s.Proxies.ClientAddress(r.http), true)
	switch {
	case err != nil:
		err = s.refuseBusy(r, view, err)
	case result.Limit.Reset > 0:
		web.SetRateLimited(r.w.Header(), result.Limit.Reset, result.Limit)
		limited := problemOf("current password",
			"Too many wrong passwords from your network. Please try again later.")
		err = s.showPassword(r.refuse(http.StatusTooManyRequests, passwordKept, limited), view)
	case !result.OK || user.ID != r.user.User.ID:
		wrong := problemOf("current password", wrongPassword)
		err = s.showPassword(r.refuse(http.StatusBadRequest, passwordKept, wrong), view)
	default:
		return result.Proof, nil
	}
	return session.Proof{}, cmp.Or(err, errAnswered)
}

// refuseBusy writes the page again if too many passwords are being checked.
func (s *Settings) refuseBusy(r *request, view *passwordView, err error) error {
	if !errors.Is(err, session.ErrBusy) {
		return err
	}
	web.SetRetryAfter(r.w.Header(), session.BusyFor)
	return s.showPassword(r.refuse(http.StatusTooManyRequests, tooManySignIns), view)
}

// removePassword refuses to remove the last sign-in method.
func (s *Settings) removePassword(r *request, view *passwordView) error {
	if !view.Fresh {
		return r.done(nil, confirmFirst)
	}
	removal := password.Removal{
		UserID:   r.user.User.ID,
		Passkeys: s.Passkeys,
		Issuer:   s.Issuer,
		Device:   r.device(),
		Address:  r.address(),
	}
	err := s.Store.RemovePassword(r.ctx(), removal, r.addressEvent(audit.UserPasswordRemoved))
	if errors.Is(err, password.ErrLastSignInMethod) {
		return s.showPassword(r.refuse(http.StatusConflict,
			"You need your password to sign in. Add a passkey before you remove it."), view)
	}
	r.back = securitySection.Path()
	return r.done(err, "Your password was removed. You now sign in without it.")
}

const (
	passwordKept   = "Your password was not changed."
	confirmFirst   = "Nothing was changed. Confirm your identity first."
	wrongPassword  = "The password is incorrect."
	tooManySignIns = "Many people are signing in right now, so your password was not checked. Please try again in a " +
		"few seconds."
)

// addressEvent returns accountEvent with the address of the request.
func (r *request) addressEvent(action audit.Action) audit.Event {
	return r.accountEvent(action, map[string]any{"address": r.address()})
}

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
	view.Status.Active, view.Status.RecoveryCodes = true, len(codes)
	for _, code := range codes {
		view.Codes = append(view.Codes, code.Reveal())
	}
	return r.show("authenticator", view)
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
