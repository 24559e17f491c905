package security

import (
	"errors"
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/web"
)

// passwordSection is the page of the password, for links back to it.
var passwordSection = ui.Section{Name: "security/password", Title: "Password"}

// A passwordView is Settings → Security → Password.
type passwordView struct {
	ui.Frame
	Key         string
	HasPassword bool
	Confirm     bool // the user has no password and must authenticate again first
	Fresh       bool // the user may remove the password now
	OtherMethod bool // the user can sign in without the password
	EndOthers   bool
	CurrentNote string // the error of the current password
	NewNote     string // the error of the new password
}

func (*passwordView) Template() string { return "password" }

// showPassword serves GET /settings/security/password.
func (h *Handler) showPassword() http.Handler {
	return h.Page(func(v *settings.Request) error {
		view, err := h.passwordView(v)
		if err != nil {
			return err
		}
		view.EndOthers = true
		h.Pages.Show(v.W, v.R, http.StatusOK, view)
		return nil
	})
}

func (h *Handler) passwordView(v *settings.Request) (*passwordView, error) {
	_, hash, _, err := h.Store.UserByID(v.R.Context(), v.Current.User.ID)
	if err != nil {
		return nil, err
	}
	frame, err := h.Frame(v, Section)
	if err != nil {
		return nil, err
	}
	frame.Title = "Password"
	another, err := h.otherMethod(v)
	if err != nil {
		return nil, err
	}
	return &passwordView{
		OtherMethod: another,
		Frame:       frame,
		Key:         h.NewKey(v),
		HasPassword: hash != "",
		// The current password in the form is as good as a recent authentication, but no second factor.
		Confirm: v.Current.SecondFactor.MustConfirm() || hash == "" && !v.Current.Fresh(h.Now()),
		Fresh:   v.Current.MayChangeFactors(h.Now()),
	}, nil
}

// otherMethod reports whether the user has a way to sign in besides the password.
func (h *Handler) otherMethod(v *settings.Request) (bool, error) {
	if h.Passkeys {
		has, err := h.Store.HasPasskey(v.R.Context(), v.Current.User.ID)
		if has || err != nil {
			return has, err
		}
	}
	if h.Issuer == "" {
		return false, nil
	}
	_, linked, err := h.Store.IdentitySince(v.R.Context(), v.Current.User.ID, h.Issuer)
	return linked, err
}

// changePassword serves POST /settings/security/password.
func (h *Handler) changePassword() http.Handler {
	return h.Form(passwordSection, func(v *settings.Request) error {
		view, err := h.passwordView(v)
		if err != nil {
			return err
		}
		view.EndOthers = v.Form.Get("end-others") != ""
		chosen := credential.Secret(v.Form.Get("new-password"))
		view.NewNote = password.CheckForm(chosen)
		if view.HasPassword && v.Form.Get("password") == "" {
			view.CurrentNote = "Enter your current password."
		}
		if view.Confirm || view.NewNote != "" || view.CurrentNote != "" {
			return h.again(v, view, http.StatusBadRequest)
		}
		change := password.Change{
			UserID:    v.Current.User.ID,
			SignInID:  v.Current.SignInID,
			EndOthers: view.EndOthers,
			Device:    session.DeviceName(v.R.UserAgent()),
			Address:   h.Proxies.ClientAddress(v.R).String(),
		}
		if view.HasPassword {
			proof, ok, err := h.currentPassword(v, view)
			if err != nil || !ok {
				return err
			}
			change.Current = proof
		}
		caller := session.Caller{Email: v.Current.User.Email, Address: h.Proxies.ClientAddress(v.R), Known: true}
		change.Hash, view.NewNote, err = password.Choose(
			v.R.Context(), h.Passwords, caller, chosen, h.Cost.Hash, v.Current.User.Name, v.Current.User.Email,
		)
		if err != nil {
			return h.busyOr(v, view, err)
		}
		if view.NewNote != "" {
			return h.again(v, view, http.StatusBadRequest)
		}
		err = h.Store.ChangePassword(v.R.Context(), change, v.Event(
			nil,
			audit.UserPasswordChanged,
			"user:"+v.Current.User.ID.String(),
			map[string]any{"address": change.Address, "others_ended": change.EndOthers},
		))
		if errors.Is(err, session.ErrProofInvalid) {
			view.CurrentNote = "The password is incorrect."
			return h.again(v, view, http.StatusBadRequest)
		}
		if err != nil {
			return err
		}
		return h.Done(v, Section.Path(), "Your password was changed.")
	})
}

// currentPassword checks the current password in the form. It returns false if it has written the response.
func (h *Handler) currentPassword(v *settings.Request, view *passwordView) (session.Proof, bool, error) {
	user, result, err := h.verifier.Verify(
		v.R.Context(),
		v.Current.User.Email,
		credential.Secret(v.Form.Get("password")),
		h.Proxies.ClientAddress(v.R),
		true,
	)
	switch {
	case err != nil:
		return session.Proof{}, false, h.busyOr(v, view, err)
	case result.Wait > 0:
		web.SetRateLimited(v.W.Header(), result.Wait, result.Limit)
		view.CurrentNote = "Too many wrong passwords from your network. Please try again later."
		return session.Proof{}, false, h.again(v, view, http.StatusTooManyRequests)
	case !result.OK || user.ID != v.Current.User.ID:
		view.CurrentNote = "The password is incorrect."
		return session.Proof{}, false, h.again(v, view, http.StatusBadRequest)
	}
	return result.Proof, true, nil
}

// busyOr writes the page again if too many passwords are being checked.
func (h *Handler) busyOr(v *settings.Request, view *passwordView, err error) error {
	if !errors.Is(err, session.ErrBusy) {
		return err
	}
	web.SetRetryAfter(v.W.Header(), session.BusyFor)
	view.Problem = "Too many people are signing in right now. Please try again in a few seconds."
	return h.again(v, view, http.StatusTooManyRequests)
}

// again shows the page with what is wrong. Passwords are never shown.
func (h *Handler) again(v *settings.Request, view *passwordView, status int) error {
	var problems ui.Problems
	for _, p := range []ui.Problem{
		ui.ProblemAt("password", "password", "Current password", view.CurrentNote),
		ui.ProblemAt("new-password", "new-password", "New password", view.NewNote),
	} {
		if p.Text != "" {
			problems = append(problems, p)
		}
	}
	if view.Problem == "" && len(problems) > 0 {
		view.Refuse("Your password was not changed.", problems...)
	}
	h.Pages.Show(v.W, v.R, status, view)
	return nil
}
