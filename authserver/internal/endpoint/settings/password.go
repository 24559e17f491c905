package settings

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A passwordView is Settings → Security → Password. It never has a password.
type passwordView struct {
	page
	HasPassword bool
	Confirm     bool // the user has no password and must authenticate again first
	Fresh       bool // the user may remove the password now
	OtherMethod bool // the user can sign in without the password
	EndOthers   bool
	CurrentNote string // the error of the current password
	NewNote     string // the error of the new password
}

func (*passwordView) Template() string { return "password" }

func (s *Settings) showPassword(r *request) error {
	view, err := s.password(r)
	if err != nil {
		return err
	}
	return r.show(view)
}

func (s *Settings) password(r *request) (*passwordView, error) {
	_, hash, _, err := s.Store.UserByID(r.ctx(), r.user.User.ID)
	if err != nil {
		return nil, err
	}
	another, err := s.otherMethod(r)
	return &passwordView{
		OtherMethod: another,
		HasPassword: hash != "",
		EndOthers:   true,
		// The current password in the form is as good as a recent authentication, but no second factor.
		Confirm: r.user.SecondFactor.MustConfirm() || hash == "" && !r.user.Fresh(s.Now()),
		Fresh:   r.user.MayChangeFactors(s.Now()),
	}, err
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
func (s *Settings) changePassword(r *request) error {
	view, err := s.password(r)
	if err != nil {
		return err
	}
	view.EndOthers = r.form.Get("end-others") != ""
	chosen := credential.Secret(r.form.Get("new-password"))
	view.NewNote = password.CheckForm(chosen)
	if view.HasPassword && r.form.Get("password") == "" {
		view.CurrentNote = "Enter your current password."
	}
	if view.Confirm || view.NewNote != "" || view.CurrentNote != "" {
		return r.refusePassword(view, http.StatusBadRequest)
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
	change.Hash, view.NewNote, err = password.Choose(r.ctx(), s.Passwords, caller, chosen,
		r.user.User.Name, r.user.User.Email)
	if err != nil {
		return r.refuseBusy(view, err)
	}
	if view.NewNote != "" {
		return r.refusePassword(view, http.StatusBadRequest)
	}
	err = s.Store.ChangePassword(r.ctx(), change, r.accountEvent(audit.UserPasswordChanged,
		map[string]any{"address": change.Address, "others_ended": change.EndOthers}))
	if errors.Is(err, session.ErrProofInvalid) {
		view.CurrentNote = "The password is incorrect."
		return r.refusePassword(view, http.StatusBadRequest)
	}
	return r.outcomeAt(securitySection.Path(), err, "Your password was changed.", nil)
}

// currentPassword checks the current password in the form. It returns errAnswered if it has written the response.
func (s *Settings) currentPassword(r *request, view *passwordView) (session.Proof, error) {
	typed := credential.Secret(r.form.Get("password"))
	user, result, err := s.Passwords.Verify(r.ctx(), r.user.User.Email, typed, s.Proxies.ClientAddress(r.http), true)
	status := http.StatusBadRequest
	switch {
	case err != nil:
		return session.Proof{}, cmp.Or(r.refuseBusy(view, err), errAnswered)
	case result.Limit.Reset > 0:
		web.SetRateLimited(r.w.Header(), result.Limit.Reset, result.Limit)
		view.CurrentNote = "Too many wrong passwords from your network. Please try again later."
		status = http.StatusTooManyRequests
	case !result.OK || user.ID != r.user.User.ID:
		view.CurrentNote = "The password is incorrect."
	default:
		return result.Proof, nil
	}
	return session.Proof{}, cmp.Or(r.refusePassword(view, status), errAnswered)
}

// refuseBusy writes the page again if too many passwords are being checked.
func (r *request) refuseBusy(view *passwordView, err error) error {
	if !errors.Is(err, session.ErrBusy) {
		return err
	}
	web.SetRetryAfter(r.w.Header(), session.BusyFor)
	return r.refuse(http.StatusTooManyRequests,
		"Too many people are signing in right now. Please try again in a few seconds.").show(view)
}

// refusePassword shows the page with what is wrong.
func (r *request) refusePassword(view *passwordView, status int) error {
	for _, p := range []ui.Problem{
		ui.ProblemAt("password", "password", "Current password", view.CurrentNote),
		ui.ProblemAt("new-password", "new-password", "New password", view.NewNote),
	} {
		if p.Text != "" {
			r.reject(p)
		}
	}
	r.rejected("Your password was not changed.")
	r.status = status
	return r.show(view)
}

// removePassword refuses to remove the last sign-in method.
func (s *Settings) removePassword(r *request) error {
	view, err := s.password(r)
	if err != nil {
		return err
	}
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
	err = s.Store.RemovePassword(r.ctx(), removal, r.addressEvent(audit.UserPasswordRemoved))
	if errors.Is(err, password.ErrLastSignInMethod) {
		return r.refuse(http.StatusConflict,
			"You need your password to sign in. Add a passkey before you remove it.").show(view)
	}
	return r.outcomeAt(securitySection.Path(), err, "Your password was removed. You now sign in without it.", nil)
}

const confirmFirst = "Nothing was changed. Confirm your identity first."

// addressEvent returns accountEvent with the address of the request.
func (r *request) addressEvent(action audit.Action) audit.Event {
	return r.accountEvent(action, map[string]any{"address": r.address()})
}
