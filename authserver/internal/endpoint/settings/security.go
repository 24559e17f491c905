package settings

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A securityView is Settings → Security: the user's sign-ins, personal access tokens of every workspace, and recent
// events.
type securityView struct {
	page
	SignIns  []signIn
	Browsers listPage // of the sign-ins
	Tokens   []pat.TokenInWorkspace
	List     listPage // of the tokens
	Events   []eventRow
	HasApp   bool         // the user has an authenticator app
	Mails    []mailChoice // empty if the deployment sends no mail
}

// A signIn is one signed-in browser.
type signIn struct {
	session.SignIn
	Device string
	This   bool
}

// A mailChoice is a kind of mail that the user can turn off.
type mailChoice struct {
	Kind   mail.Kind
	Title  string
	Wanted bool
}

const recentEvents = 30

func (s *Settings) showSecurity(r *request) error {
	view, user := &securityView{}, r.user.User.ID
	found, err := s.Store.SignInsOf(r.ctx(), user)
	if err != nil {
		return err
	}
	for _, one := range found {
		row := signIn{one, session.DeviceName(one.UserAgent), one.ID == r.user.SignInID}
		view.SignIns = append(view.SignIns, row)
	}
	view.SignIns, view.Browsers = listing[signIn]{
		Of:        "browsers",
		Parameter: "browsers",
		First:     func(s signIn) bool { return s.This },
	}.Select(r, view.SignIns)
	tokens, err := s.Store.ActiveTokens(r.ctx(), user)
	if err != nil {
		return err
	}
	list := listing[pat.TokenInWorkspace]{Of: "tokens", Parameter: "tokens"}
	view.Tokens, view.List = list.Select(r, tokens)
	events, err := s.Store.EventsOfUser(r.ctx(), user, recentEvents)
	if err != nil {
		return err
	}
	for _, e := range events {
		view.Events = append(view.Events, eventView(e, &user))
	}
	if view.Mails, err = s.mailChoices(r); err != nil {
		return err
	}
	app, err := s.Store.Authenticator(r.ctx(), user)
	if err != nil {
		return err
	}
	view.HasApp = app.Active
	if err := r.offerPasskey(&view.Frame); err != nil {
		return err
	}
	return r.show("security", view)
}

// mailChoices returns the choices of the user, or none if the deployment sends no mail.
func (s *Settings) mailChoices(r *request) (choices []mailChoice, err error) {
	if !s.Mails {
		return nil, nil
	}
	unwanted, err := s.Store.UnwantedMails(r.ctx(), r.user.User.ID)
	if err != nil {
		return nil, err
	}
	for _, k := range mail.OptionalKinds() {
		choices = append(choices, mailChoice{k, k.Choice(), !slices.Contains(unwanted, k)})
	}
	return choices, nil
}

// chooseMails takes mail: the kinds that are not ticked are turned off.
func (s *Settings) chooseMails(r *request) error {
	unwanted := []mail.Kind{}
	for _, k := range mail.OptionalKinds() {
		if !slices.Contains(r.form["mail"], string(k)) {
			unwanted = append(unwanted, k)
		}
	}
	event := r.accountEvent(audit.UserMailsChanged, map[string]any{"unwanted": unwanted})
	err := s.Store.SetUnwantedMails(r.ctx(), r.user.User.ID, unwanted, event)
	return r.outcome(err, "Your choice of mails was saved.", nil)
}

// signOut takes id and ends one other sign-in of the user.
func (s *Settings) signOut(r *request) error {
	if r.id() == uuid.Nil {
		return r.done("The browser is no longer signed in.")
	}
	event := r.event(nil, audit.SignInEnded, "sign_in:"+r.id().String(), nil)
	err := s.Store.EndSignIn(r.ctx(), r.user.User.ID, r.id(), event)
	return r.outcome(err, "The browser was signed out.", nil)
}

func (s *Settings) signOutOthers(r *request) error {
	event := r.accountEvent(audit.SignInOthersEnded, nil)
	ended, err := s.Store.EndOtherSignIns(r.ctx(), r.user.User.ID, r.user.SignInID, event)
	if ended == 1 {
		return r.outcome(err, "1 other browser was signed out.", nil)
	}
	return r.outcome(err, strconv.FormatInt(ended, 10)+" other browsers were signed out.", nil)
}

// revokeAnyToken takes id and revokes a token of the user in any workspace, including those where the user may no
// longer create tokens.
func (s *Settings) revokeAnyToken(r *request) error {
	tokens, err := s.Store.ActiveTokens(r.ctx(), r.user.User.ID)
	if err != nil {
		return err
	}
	for _, t := range tokens {
		if t.ID == r.id() {
			return s.revokeToken(r, t.Token)
		}
	}
	return r.done(tokenOver)
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

// onPassword returns the handler of the page, or of one of its forms, that gets the view.
func (s *Settings) onPassword(handle func(*request, *passwordView) error) handler {
	return func(r *request) error {
		_, hash, _, err := s.Store.UserByID(r.ctx(), r.user.User.ID)
		if err != nil {
			return err
		}
		another, err := s.otherMethod(r)
		if err != nil {
			return err
		}
		return handle(r, &passwordView{
			OtherMethod: another,
			HasPassword: hash != "",
			EndOthers:   true,
			// The current password in the form is as good as a recent authentication, but no second factor.
			Confirm: r.user.SecondFactor.MustConfirm() || hash == "" && !r.user.Fresh(s.Now()),
			Fresh:   r.user.MayChangeFactors(s.Now()),
		})
	}
}

func (s *Settings) showPassword(r *request, view *passwordView) error {
	return r.show("password", view)
}

// otherMethod reports whether the user has a way to sign in besides the password.
func (s *Settings) otherMethod(r *request) (bool, error) {
	if s.Passkeys {
		has, err := s.Store.HasPasskey(r.ctx(), r.user.User.ID)
		if has || err != nil {
			return has, err
		}
	}
	if s.Issuer == "" {
		return false, nil
	}
	_, linked, err := s.Store.IdentitySince(r.ctx(), r.user.User.ID, s.Issuer)
	return linked, err
}

// changePassword takes password, new-password and end-others.
func (s *Settings) changePassword(r *request, view *passwordView) (err error) {
	view.EndOthers = r.form.Get("end-others") != ""
	chosen := credential.Secret(r.form.Get("new-password"))
	if view.HasPassword && r.form.Get("password") == "" {
		r.reject(currentProblem("Enter your current password."))
	}
	if note := password.CheckForm(chosen); note != "" {
		r.reject(newProblem(note))
	}
	if view.Confirm || len(r.problems) > 0 {
		return s.refusePassword(r, view, http.StatusBadRequest)
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
	hash, note, err := password.Choose(r.ctx(), s.Passwords, caller, chosen,
		r.user.User.Name, r.user.User.Email)
	if err != nil {
		return s.refuseBusy(r, view, err)
	}
	if note != "" {
		return s.refusePassword(r, view, http.StatusBadRequest, newProblem(note))
	}
	change.Hash = hash
	err = s.Store.ChangePassword(r.ctx(), change, r.accountEvent(audit.UserPasswordChanged,
		map[string]any{"address": change.Address, "others_ended": change.EndOthers}))
	if errors.Is(err, session.ErrProofInvalid) {
		return s.refusePassword(r, view, http.StatusBadRequest, currentProblem(wrongPassword))
	}
	return r.outcomeAt(securitySection.Path(), err, "Your password was changed.", nil)
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
		err = s.refusePassword(r, view, http.StatusTooManyRequests,
			currentProblem("Too many wrong passwords from your network. Please try again later."))
	case !result.OK || user.ID != r.user.User.ID:
		err = s.refusePassword(r, view, http.StatusBadRequest, currentProblem(wrongPassword))
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

// refusePassword shows the page with what is wrong.
func (s *Settings) refusePassword(r *request, view *passwordView, status int, problems ...ui.Problem) error {
	r.problems = append(r.problems, problems...)
	r.rejected("Your password was not changed.")
	r.status = status
	return s.showPassword(r, view)
}

func currentProblem(text string) ui.Problem {
	return ui.ProblemAt("password", "password", "Current password", text)
}

func newProblem(text string) ui.Problem {
	return ui.ProblemAt("new-password", "new-password", "New password", text)
}

// removePassword refuses to remove the last sign-in method.
func (s *Settings) removePassword(r *request, view *passwordView) error {
	if !view.Fresh {
		return r.done(confirmFirst)
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
	return r.outcomeAt(securitySection.Path(), err, "Your password was removed. You now sign in without it.", nil)
}

const (
	confirmFirst   = "Nothing was changed. Confirm your identity first."
	wrongPassword  = "The password is incorrect."
	tooManySignIns = "Too many people are signing in right now. Please try again in a few seconds."
)

// addressEvent returns accountEvent with the address of the request.
func (r *request) addressEvent(action audit.Action) audit.Event {
	return r.accountEvent(action, map[string]any{"address": r.address()})
}
