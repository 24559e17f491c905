package settings

import (
	"errors"
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// developerPage is what every page of tokens, applications and webhooks has.
type developerPage struct {
	page
	BaseURL string
	Held    perm.Set
	Reauth  reauthMethod
	Outcome *formResult
}

func (d *developerPage) developer() *developerPage { return d }

// A formResult is what a form did. The page shows it only once, with the credential that the form created.
type formResult struct {
	ID      string // of the token or application, or ""
	Heading string
	Text    string
	Label   string
	Value   string // "" if it cannot be shown, or not again
	Client  string // client id of the value, or ""
	Curl    string // a command that uses the token, or ""
	Consent string // where an application sends people, or ""
	Steps   []string
	Docs    string // URL of the API's description of the steps
}

// A developerView embeds developerPage.
type developerView interface {
	view
	developer() *developerPage
}

// showDeveloper shows a page of the section.
func (s *Settings) showDeveloper(r *request, v developerView) error {
	method, err := s.reauthMethod(r)
	if err != nil {
		return err
	}
	common := v.developer()
	common.BaseURL, common.Held, common.Reauth = s.BaseURL, r.here.Permissions, method
	return r.show(v)
}

// A reauthMethod is how the user must authenticate before a credential is created.
type reauthMethod int

// noReauth: the user authenticated recently. byPassword: the form asks for the password. onOtherPage: the user has no
// password and authenticates on another page.
const (
	noReauth reauthMethod = iota
	byPassword
	onOtherPage
)

// reauthField is the password field, or the link to reauthentication, if the user must authenticate.
type reauthField struct {
	Password, Elsewhere   bool
	ID, Note, WorkspaceID string
	First                 bool // of the errors: it gets the focus
}

// ReauthField returns the field of the form with this id, with its error.
func (d *developerPage) ReauthField(id string) reauthField {
	field := reauthField{d.Reauth == byPassword, d.Reauth == onOtherPage, id, "", d.Workspace.ID, false}
	for _, problem := range d.Problems {
		if problem.At == passwordField(id) {
			field.Note, field.First = problem.Text, d.Problems.First(problem.Field)
		}
	}
	return field
}

// passwordField returns the element id of the password field of a form.
func passwordField(id string) string { return "password-" + id }

// reauthMethod returns how the user must authenticate before a credential is created.
func (s *Settings) reauthMethod(r *request) (reauthMethod, error) {
	if r.user.Fresh(s.Now()) {
		return noReauth, nil
	}
	_, hash, _, err := s.Store.UserByEmail(r.ctx(), r.user.User.Email)
	if err != nil {
		return noReauth, err
	}
	app, err := s.Store.Authenticator(r.ctx(), r.user.User.ID)
	if err != nil {
		return noReauth, err
	}
	if hash == "" || app.Active {
		return onOtherPage, nil
	}
	return byPassword, nil
}

// reauthenticate authenticates the user by password, unless a recent authentication exists, or rejects the password
// field of the form with this id. If another field was rejected, it only checks whether a password was entered: the
// page then shows all errors at once.
func (s *Settings) reauthenticate(r *request, form string) error {
	valid := len(r.problems) == 0
	reject := func(status int, text string) error {
		r.reject(ui.ProblemAt("password", passwordField(form), "Your password", text))
		r.status = status
		return nil
	}
	method, err := s.reauthMethod(r)
	password := credential.Secret(r.form.Get("password"))
	switch {
	case err != nil || method == noReauth:
		return err
	case method == onOtherPage:
		return reject(http.StatusBadRequest, "Confirm your identity first.")
	case password == "":
		return reject(http.StatusBadRequest, "Enter your password to continue.")
	case !valid:
		return nil
	}
	_, result, err := s.Passwords.Verify(r.ctx(), r.user.User.Email, password, s.Proxies.ClientAddress(r.http), true)
	switch {
	case errors.Is(err, session.ErrBusy):
		web.SetRetryAfter(r.w.Header(), session.BusyFor)
		return reject(http.StatusTooManyRequests,
			"Too many people are signing in right now. Please try again in a few seconds.")
	case err != nil:
		return err
	case result.Limit.Reset > 0:
		web.SetRateLimited(r.w.Header(), result.Limit.Reset, result.Limit)
		return reject(http.StatusTooManyRequests, "Too many wrong passwords. Please try again later.")
	case !result.OK:
		return reject(http.StatusBadRequest, "The password is incorrect.")
	}
	err = s.Sessions.Reauthenticated(r.w, r.http, r.user, result.Proof, s.Proxies.ClientAddress(r.http))
	switch {
	case errors.Is(err, session.ErrProofInvalid):
		return reject(http.StatusBadRequest, "The password is incorrect.")
	case errors.Is(err, session.ErrCodeNeeded): // an app was set up meanwhile
		return reject(http.StatusBadRequest, "Confirm your identity first.")
	case err == nil:
		r.user.AuthenticatedAt = s.Now()
	}
	return err
}

// A replacementView is the page with the form that replaces a token or the secret of an application.
type replacementView struct {
	developerPage
	ID, Name  string
	Secret    bool // of an application; otherwise a token
	ExpireOld bool // as typed: a leaked secret must not stay valid because the password was mistyped first
}

func (*replacementView) Template() string { return "replacement" }

func (s *Settings) showReplacement(r *request, view *replacementView) error {
	view.Title = "Replace " + view.Name
	return s.showDeveloper(r, view)
}

// revoke revokes a token of the user and redirects to the page.
func (s *Settings) revoke(r *request, token pat.Token) error {
	event := r.event(&token.WorkspaceID, audit.TokenRevoked, "token:"+token.ID.String(),
		map[string]any{"name": token.Name, "reason": pat.ByUser})
	revoked, err := s.Store.RevokeToken(r.ctx(), r.user.User.ID, token.WorkspaceID, token.ID, pat.ByUser, event)
	if err == nil && !revoked {
		return r.done("The token is no longer active.")
	}
	return r.outcome(err, "The token "+token.Name+" was revoked.", nil)
}
