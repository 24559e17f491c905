package settings

import (
	"errors"
	"fmt"
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
	Note       string // what is wrong with the name, or ""
	Workspaces []ui.Workspace
}

func (*userView) Template() string { return "user" }

func (s *Settings) showUser(r *request) error { return s.showName(r, r.user.User.Name) }

func (s *Settings) showName(r *request, name string) error {
	memberships, err := r.workspaces()
	if err != nil {
		return err
	}
	view := &userView{Name: name, Note: r.problems.Of("name"), Workspaces: workspaceViews(memberships)}
	if err := r.offerPasskey(&view.Frame); err != nil {
		return err
	}
	return r.show(view)
}

// setName takes name.
func (s *Settings) setName(r *request) error {
	name := strings.TrimSpace(r.form.Get("name"))
	if note := displayname.Check(name, displayname.MaxLength); note != "" {
		r.reject(ui.ProblemAt("name", "name", "Your name", note))
	}
	if r.rejected("The name was not saved.") {
		return s.showName(r, r.form.Get("name"))
	}
	err := s.Store.SetName(r.ctx(), r.user.User.ID, name, r.accountEvent(audit.UserRenamed, nil))
	return r.outcome(err, "Your name was saved.", nil)
}

// An emailView is Settings → User → Change your e-mail address.
type emailView struct {
	page
	Mails   bool   // the deployment sends mail
	Email   string // as typed
	Note    string // the error of the field
	Confirm string // path at which the user must reauthenticate first, or ""
	Open    *useraccount.EmailChange
}

func (*emailView) Template() string { return "changeemail" }

func (s *Settings) showEmail(r *request) error {
	open, err := s.Accounts.OpenEmailChange(r.ctx(), r.user.User.ID)
	if err != nil {
		return err
	}
	view := &emailView{Mails: s.Mails, Email: r.form.Get("email"), Note: r.problems.Of("email"), Open: open}
	if !r.user.MayChangeFactors(s.Now()) {
		back := r.section.Path()
		if view.Email != "" {
			back += "?email=" + url.QueryEscape(view.Email)
		}
		view.Confirm = "/login/again?return=" + url.QueryEscape(back)
	}
	return r.show(view)
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
	Effects []string                // what ends
	Stays   []string                // what does not
	Managed []useraccount.Workspace // workspaces that need another member who manages members (P2)
	Confirm bool                    // the user must reauthenticate first
	Note    string                  // the error of the checkbox
}

func (*deletionView) Template() string { return "deleteaccount" }

func (s *Settings) showDeletion(r *request) error {
	view, err := s.deletion(r)
	if err != nil {
		return err
	}
	return r.show(view)
}

func (s *Settings) deletion(r *request) (*deletionView, error) {
	summary, err := s.Accounts.Summary(r.ctx(), r.user.User.ID)
	if err != nil {
		return nil, err
	}
	return &deletionView{
		Effects: effects(summary),
		Stays:   stays(summary),
		Managed: summary.Unmanaged(),
		Confirm: !r.user.MayChangeFactors(s.Now()),
	}, nil
}

// deleteAccount takes confirm.
func (s *Settings) deleteAccount(r *request) error {
	view, err := s.deletion(r)
	if err != nil {
		return err
	}
	if view.Confirm || len(view.Managed) > 0 {
		return r.refuse(http.StatusConflict, "Nothing was deleted.").show(view)
	}
	if r.form.Get("confirm") != "yes" {
		view.Note = "Tick this box to delete your account."
		problem := ui.ProblemAt("confirm", "confirm", "Confirmation", view.Note)
		return r.refuse(http.StatusBadRequest, "Nothing was deleted.", problem).show(view)
	}
	err = s.Accounts.Delete(r.ctx(), r.user.User.ID, r.accountEvent(audit.UserDeleted, nil))
	if errors.Is(err, membership.ErrLastHolder) { // another manager left after the page was shown
		return r.done("Nothing was deleted.")
	}
	if err != nil {
		return err
	}
	if err := s.Sessions.End(r.w, r.http); err != nil {
		return err
	}
	redirect(r.w, "/login?"+ui.AccountDeleted+"=1")
	return nil
}

// effects returns what ends with the account, in words.
func effects(s useraccount.Summary) []string {
	lines := []string{"Your name and your e-mail address are removed, and you are signed out of all browsers."}
	for _, w := range s.Workspaces {
		lines = append(lines, "You leave the workspace "+w.Name+".")
	}
	if s.Connections+s.Tokens > 0 {
		lines = append(lines, fmt.Sprintf("%s and %s stop working.",
			count(s.Connections, "connected app"), count(s.Tokens, "personal access token")))
	}
	if s.SignInMethods > 0 {
		lines = append(lines, fmt.Sprintf("Your passkeys, linked accounts and authenticator app are removed (%s).",
			count(s.SignInMethods, "sign-in method")))
	}
	if s.Invitations > 0 {
		lines = append(lines, "Invitations that you sent and that are still open are withdrawn.")
	}
	return append(lines, "Invitations that you have not answered are declined.")
}

// stays returns what does not end with the account, in words.
func stays(s useraccount.Summary) []string {
	var lines []string
	if s.Applications > 0 {
		lines = append(lines, count(s.Applications, "application")+" that you registered, in their workspaces.")
	}
	return append(lines,
		"What you entered in a workspace, such as programmes and forms.",
		"Entries in audit logs. They show an identifier in place of your name.",
	)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
