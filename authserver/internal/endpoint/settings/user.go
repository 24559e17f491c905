package settings

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/contract/displayname"
	"github.com/almonerhq/almoner/shared/contract/spelling"
)

// A userView is Settings → User.
type userView struct {
	page
	Name       string // current, or as submitted
	Workspaces []ui.Workspace
}

func (s *Settings) showUser(r *request) error {
	memberships, err := r.workspaces()
	if err != nil {
		return err
	}
	view := &userView{Name: r.user.User.Name, Workspaces: workspaceViews(memberships)}
	if r.problem != "" {
		view.Name = r.form.Get("name")
	}
	if err := r.offerPasskey(&view.Frame); err != nil {
		return err
	}
	return r.show("user", view)
}

// setName takes name.
func (s *Settings) setName(r *request) error {
	name := strings.TrimSpace(r.form.Get("name"))
	if note := displayname.Check(name, displayname.MaxLength); note != "" {
		problem := ui.ProblemAt("name", "name", "Your name", note)
		return s.showUser(r.refuse(http.StatusBadRequest, "The name was not saved.", problem))
	}
	err := s.Store.SetName(r.ctx(), r.user.User.ID, name, r.accountEvent(audit.UserRenamed, nil))
	return r.outcome(err, "Your name was saved.", nil)
}

// An emailView is Settings → User → Change your e-mail address.
type emailView struct {
	page
	Mails   bool   // the deployment sends mail
	Email   string // as typed
	Confirm string // path at which the user must reauthenticate first, or ""
	Open    *useraccount.EmailChange
}

func (s *Settings) showEmail(r *request) error {
	open, err := s.Accounts.OpenEmailChange(r.ctx(), r.user.User.ID)
	if err != nil {
		return err
	}
	view := &emailView{Mails: s.Mails, Email: r.form.Get("email"), Open: open}
	if !r.user.MayChangeFactors(s.Now()) {
		back := r.section.Path()
		if view.Email != "" {
			back += "?email=" + url.QueryEscape(view.Email)
		}
		view.Confirm = "/login/again?return=" + url.QueryEscape(back)
	}
	return r.show("changeemail", view)
}

// changeEmail takes email.
func (s *Settings) changeEmail(r *request) error {
	if !s.Mails || !r.user.MayChangeFactors(s.Now()) {
		return s.showEmail(r.refuse(http.StatusConflict, "Nothing was changed."))
	}
	refuse := func(status int, note string) error {
		problem := ui.ProblemAt("email", "email", "New e-mail address", note)
		return s.showEmail(r.refuse(status, "Nothing was changed.", problem))
	}
	email, err := membership.ParseEmail(r.form.Get("email"))
	if refusal, ok := errors.AsType[*membership.Refusal](err); ok {
		return refuse(http.StatusBadRequest, refusal.Message)
	}
	if email == spelling.Key(r.user.User.Email) {
		return refuse(http.StatusBadRequest, "This is your address already.")
	}
	err = s.Accounts.RequestEmailChange(r.ctx(), useraccount.EmailRequest{
		ID:      r.key.Makes,
		UserID:  r.user.User.ID,
		Email:   email,
		Device:  r.device(),
		Network: r.address(),
	}, r.addressEvent(audit.UserEmailRequested))
	if errors.Is(err, useraccount.ErrTooManyChanges) {
		return refuse(http.StatusTooManyRequests, "Too many changes were requested today. Please try again tomorrow.")
	}
	return r.outcome(err, "We sent a link to both addresses. Open both links to change your address.", nil)
}

// A deletionView is Settings → User → Delete your account.
type deletionView struct {
	page
	Summary useraccount.Summary     // what ends, and what does not
	Managed []useraccount.Workspace // workspaces that need another member who manages members (P2)
	Confirm bool                    // the user must reauthenticate first
}

// onDeletion returns the handler of the page, or of its form, that gets the view.
func (s *Settings) onDeletion(handle func(*request, *deletionView) error) handler {
	return func(r *request) error {
		summary, err := s.Accounts.DeletionSummary(r.ctx(), r.user.User.ID)
		if err != nil {
			return err
		}
		confirm := !r.user.MayChangeFactors(s.Now())
		return handle(r, &deletionView{Summary: summary, Managed: summary.Unmanaged(), Confirm: confirm})
	}
}

func (s *Settings) showDeletion(r *request, view *deletionView) error {
	return r.show("deleteaccount", view)
}

// deleteAccount takes confirm.
func (s *Settings) deleteAccount(r *request, view *deletionView) error {
	if view.Confirm || len(view.Managed) > 0 {
		return s.showDeletion(r.refuse(http.StatusConflict, "Nothing was deleted."), view)
	}
	if r.form.Get("confirm") != "yes" {
		problem := ui.ProblemAt("confirm", "confirm", "Confirmation", "Tick this box to delete your account.")
		return s.showDeletion(r.refuse(http.StatusBadRequest, "Nothing was deleted.", problem), view)
	}
	err := s.Accounts.Delete(r.ctx(), r.user.User.ID, r.accountEvent(audit.UserDeleted, nil))
	if errors.Is(err, membership.ErrLastHolder) { // another manager left after the page was shown
		return r.done("Nothing was deleted.")
	}
	if err != nil {
		return err
	}
	if err := s.Sessions.End(r.w, r.http); err != nil {
		return err
	}
	ui.Redirect(r.w, "/login?"+ui.AccountDeleted+"=1")
	return nil
}
