package user

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"

	"github.com/almonerhq/almoner/shared/spelling"
)

// emailSection is the page on which users change their address, for links back to it.
var emailSection = ui.Section{Name: "user/email", Title: "Change your e-mail address"}

// An emailView is Settings → User → Change your e-mail address.
type emailView struct {
	ui.Frame
	Key     string
	Mails   bool   // the deployment sends mail
	Email   string // as typed
	Note    string // the error of the field
	Confirm string // path at which the user must reauthenticate first, or ""
	Open    *useraccount.EmailChange
}

func (*emailView) Template() string { return "changeemail" }

// showEmail serves GET /settings/user/email.
func (h *Handler) showEmail() http.Handler {
	return h.Page(func(v *settings.Request) error {
		view, err := h.emailView(v, v.R.URL.Query().Get("email"))
		if err != nil {
			return err
		}
		h.Pages.Show(v.W, v.R, http.StatusOK, view)
		return nil
	})
}

func (h *Handler) emailView(v *settings.Request, typed string) (*emailView, error) {
	open, err := h.Accounts.OpenEmailChange(v.R.Context(), v.Current.User.ID)
	if err != nil {
		return nil, err
	}
	frame, err := h.Frame(v, Section)
	if err != nil {
		return nil, err
	}
	frame.Title = emailSection.Title
	view := &emailView{Frame: frame, Key: h.NewKey(v), Mails: h.Mails, Email: typed, Open: open}
	if !v.Current.MayChangeFactors(h.Now()) {
		back := emailSection.Path()
		if typed != "" {
			back += "?email=" + url.QueryEscape(typed)
		}
		view.Confirm = "/login/again?return=" + url.QueryEscape(back)
	}
	return view, nil
}

// changeEmail serves POST /settings/user/email: email.
func (h *Handler) changeEmail() http.Handler {
	return h.Form(emailSection, func(v *settings.Request) error {
		view, err := h.emailView(v, v.Form.Get("email"))
		if err != nil {
			return err
		}
		if view.Confirm != "" || !h.Mails {
			view.Problem = "Nothing was changed."
			h.Pages.Show(v.W, v.R, http.StatusConflict, view)
			return nil
		}
		email, err := membership.ParseEmail(view.Email)
		if refusal, ok := errors.AsType[*membership.Refusal](err); ok {
			return h.refuseEmail(v, view, http.StatusBadRequest, refusal.Message)
		}
		if email == spelling.Key(v.Current.User.Email) {
			return h.refuseEmail(v, view, http.StatusBadRequest, "This is your address already.")
		}
		network := h.Proxies.ClientAddress(v.R).String()
		event := v.Event(nil, audit.UserEmailRequested, v.Current.Actor(), map[string]any{"address": network})
		err = h.Accounts.RequestEmailChange(v.R.Context(), useraccount.EmailRequest{
			ID:      v.Key.Makes,
			UserID:  v.Current.User.ID,
			Email:   email,
			Device:  session.DeviceName(v.R.UserAgent()),
			Network: network,
		}, event)
		if errors.Is(err, useraccount.ErrTooManyChanges) {
			return h.refuseEmail(v, view, http.StatusTooManyRequests, "Too many changes were requested today. Please "+
				"try again tomorrow.")
		}
		if err != nil {
			return err
		}
		return h.Done(v, emailSection.Path(), "We sent a link to both addresses. Open both links to change "+
			"your address.")
	})
}

func (h *Handler) refuseEmail(v *settings.Request, view *emailView, status int, note string) error {
	view.Note = note
	view.Refuse("Nothing was changed.", ui.ProblemAt("email", "email", "New e-mail address", note))
	h.Pages.Show(v.W, v.R, status, view)
	return nil
}
