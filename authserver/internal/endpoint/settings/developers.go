package settings

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// An outcome is what a form for developers did. The page shows it only once, with the credential that the form created.
type outcome struct {
	What     string    // chooses the words in part_developers.html
	ID       uuid.UUID // of the token or application, if it created one, which comes first in its list
	Name     string
	Value    string // "" if it cannot be shown, or not again
	Client   string // client id of the value, or ""
	Consent  string // where a new application with a secret sends people, or ""
	Resource string // of a new connector, or ""
}

// created reports whether the form created what has this id.
func (r *request) created(id uuid.UUID) bool { return r.outcome != nil && r.outcome.ID == id }

// A reauthMethod is how the user must authenticate before a credential is created.
type reauthMethod string

const (
	noReauth    reauthMethod = ""          // the user authenticated recently
	byPassword  reauthMethod = "password"  // the form asks for the password
	onOtherPage reauthMethod = "elsewhere" // the password alone is not enough, or there is none
)

// A reauthField is the password field of a form, or the link to reauthentication, if the user must authenticate.
type reauthField struct {
	*page
	ID string // of the form
}

// ReauthField returns the field of the form with this id.
func (p *page) ReauthField(id string) reauthField { return reauthField{p, id} }

// Note returns the error of the field, or "".
func (f reauthField) Note() string {
	for _, problem := range f.Problems {
		if problem.At == passwordField(f.ID) {
			return problem.Text
		}
	}
	return ""
}

// passwordField returns the element id of the password field of a form.
func passwordField(id string) string { return "password-" + id }

// reauthMethod returns how the user must authenticate before a credential is created.
func (r *request) reauthMethod() (reauthMethod, error) {
	if r.user.Fresh(r.Now()) {
		return noReauth, nil
	}
	app, err := r.Store.Authenticator(r.ctx(), r.user.User.ID)
	if err != nil {
		return noReauth, err
	}
	_, hash, _, err := r.Store.UserByID(r.ctx(), r.user.User.ID)
	if hash == "" || app.Active {
		return onOtherPage, err
	}
	return byPassword, err
}

// confirm makes sure that no field of a form was rejected and that the user authenticated recently, with the password
// in the form if need be. If not, it shows the page again, which says what was not done, and returns errAnswered.
func (s *Settings) confirm(r *request, form, undone string, again handler) error {
	err := s.reauthenticate(r, form)
	if err == nil && r.rejected(undone) {
		return cmp.Or(again(r), errAnswered)
	}
	return err
}

// reauthenticate authenticates the user by password, unless a recent authentication exists, or rejects the password
// field of the form with this id. If another field was rejected, it only checks whether a password was entered: the
// page then shows all errors at once.
func (s *Settings) reauthenticate(r *request, form string) error {
	valid := len(r.problems) == 0
	reject := func(status int, text string) error {
		r.reject("your password", text)
		r.problems[len(r.problems)-1].At = passwordField(form)
		r.status = status
		return nil
	}
	method, err := r.reauthMethod()
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
		return reject(http.StatusTooManyRequests, tooManySignIns)
	case err != nil:
		return err
	case result.Limit.Reset > 0:
		web.SetRateLimited(r.w.Header(), result.Limit.Reset, result.Limit)
		return reject(http.StatusTooManyRequests, "Too many wrong passwords. Please try again later.")
	case !result.OK:
		return reject(http.StatusBadRequest, wrongPassword)
	}
	err = s.Sessions.Reauthenticated(r.w, r.http, r.user, result.Proof, s.Proxies.ClientAddress(r.http))
	switch {
	case errors.Is(err, session.ErrProofInvalid):
		return reject(http.StatusBadRequest, wrongPassword)
	case errors.Is(err, session.ErrCodeNeeded): // an app was set up meanwhile
		return reject(http.StatusBadRequest, "Confirm your identity first.")
	case err == nil:
		r.user.AuthenticatedAt = s.Now()
	}
	return err
}

// A replacementView is the page with the form that replaces a token or the secret of an application.
type replacementView struct {
	page
	ID, Name string
	Secret   bool // of an application; otherwise a token
}

// showReplacement shows the form, as typed if it was refused: a leaked secret must not stay valid because the password
// was mistyped first.
func (r *request) showReplacement(id uuid.UUID, name string, secret bool) error {
	view := &replacementView{page{Form: r.typed(nil)}, id.String(), name, secret}
	view.Title = "Replace " + name
	return r.show("replacement", view)
}

// A tokensView is Settings → Developers: the user's tokens for one workspace.
type tokensView struct {
	page
	List   listPage
	Tokens []tokenRow
	Ended  []pat.Token
}

// A tokenRow is an active token in the list.
type tokenRow struct {
	pat.Token
	Replaces *time.Time // creation time of the active token that it replaces when it is first used, or nil
}

// showTokens shows the tokens, and what a form did.
func (s *Settings) showTokens(r *request) error {
	tokens, err := s.Store.Tokens(r.ctx(), r.user.User.ID, r.here.Workspace.ID)
	if err != nil {
		return err
	}
	view := &tokensView{}
	for _, t := range tokens {
		row := tokenRow{Token: t}
		if !t.Active(s.Now()) {
			view.Ended = append(view.Ended, t)
			continue
		}
		for _, former := range tokens {
			if t.ReplacesID != nil && former.ID == *t.ReplacesID && former.Active(s.Now()) {
				row.Replaces = &former.Created
			}
		}
		view.Tokens = append(view.Tokens, row)
	}
	view.Tokens, view.List = listing[tokenRow]{
		Of:    "tokens",
		First: func(t tokenRow) bool { return r.created(t.ID) },
		Text:  func(t tokenRow) []string { return []string{t.Name, strings.Join(t.Permissions.Strings(), " ")} },
	}.Select(r, view.Tokens)
	view.Ended = view.Ended[:min(len(view.Ended), pageSize)]
	return r.show("tokens", view)
}

// Lifetimes returns the numbers of days from which the user chooses the life of a token.
func (*page) Lifetimes() []int { return pat.Lifetimes() }

// showNewToken shows the form, as typed if it was refused.
func (s *Settings) showNewToken(r *request) error {
	view := &page{Form: r.typed(url.Values{"days": {"30"}})}
	view.Title = "New token"
	return r.show("newtoken", view)
}

// createToken takes name, days and permissions.
func (s *Settings) createToken(r *request) error {
	days, _ := strconv.Atoi(r.form.Get("days")) // text that is not a number becomes 0, which is not a choice
	wish := pat.Request{Name: r.form.Get("name"), Days: days, Permissions: r.form["permissions"]}
	for _, refusal := range wish.Refusals(r.here.Permissions) {
		r.reject("token "+refusal.Field, refusal.Message)
	}
	if err := s.confirm(r, "token", "The token was not created.", s.showNewToken); err != nil {
		return err
	}
	token, err := wish.Accept(r.here.Permissions, s.Now())
	if err != nil {
		return err
	}
	return s.saveToken(r, token, nil)
}

func (s *Settings) showTokenReplacement(r *request, token pat.Token) error {
	return r.showReplacement(token.ID, token.Name, false)
}

// replaceToken takes id. It creates a token with the name, lifetime and permissions of another, without permissions
// that the user has lost. The other token ends when the new one is first used.
func (s *Settings) replaceToken(r *request, former pat.Token) error {
	again := func(r *request) error { return s.showTokenReplacement(r, former) }
	if err := s.confirm(r, former.ID.String(), "Nothing was created.", again); err != nil {
		return err
	}
	permissions := former.Permissions.Intersect(r.here.Permissions)
	wish := pat.Request{Name: former.Name, Days: former.Days(), Permissions: permissions.Strings()}
	token, err := wish.Accept(r.here.Permissions, s.Now())
	if _, refused := errors.AsType[*pat.Refusal](err); refused {
		return s.showTokens(r.refuse(http.StatusBadRequest,
			"The token was not replaced, because you no longer have any of its permissions."))
	}
	if err != nil {
		return err
	}
	token.ReplacesID = &former.ID
	return s.saveToken(r, token, &former)
}

// saveToken stores a token and shows its value, only this time. The form's key names the token, so the same form sent
// again does not create another.
func (s *Settings) saveToken(r *request, token pat.Token, former *pat.Token) error {
	value, err := credential.PersonalAccessToken.New(s.Random)
	if err != nil {
		return fmt.Errorf("create token: %w", err)
	}
	token.ID, token.UserID, token.WorkspaceID = r.key.Makes, r.user.User.ID, r.here.Workspace.ID
	detail := map[string]any{
		"name":        token.Name,
		"permissions": token.Permissions.Strings(),
		"expires":     token.Expires.UTC().Format(time.RFC3339),
	}
	if former != nil {
		detail["replaces"] = former.ID.String()
	}
	event := r.eventHere(audit.TokenCreated, "token:"+token.ID.String(), detail, token.Permissions...)
	saved, err := s.Store.SaveToken(r.ctx(), token, credential.Hash(value.Reveal()), event)
	if err != nil {
		return err
	}
	did := outcome{What: "token again"}
	if saved {
		did = outcome{What: "token", ID: token.ID, Name: token.Name, Value: value.Reveal()}
	}
	return s.showTokens(r.withOutcome(did))
}

// errTokenOver reports that the user has no active token with the id in the form.
var errTokenOver = errors.New("the token is not active")

// token reads the active token that the form names.
func (r *request) token() (pat.Token, error) {
	tokens, err := r.Store.Tokens(r.ctx(), r.user.User.ID, r.here.Workspace.ID)
	named := func(t pat.Token) bool { return t.ID == r.id() && t.Active(r.Now()) }
	if at := slices.IndexFunc(tokens, named); at >= 0 {
		return tokens[at], nil
	}
	return pat.Token{}, cmp.Or(err, errTokenOver)
}

// anyToken reads the active token that the form names, in any workspace, including those where the user may no longer
// create tokens.
func (r *request) anyToken() (pat.Token, error) {
	tokens, err := r.Store.ActiveTokens(r.ctx(), r.user.User.ID)
	named := func(t pat.TokenInWorkspace) bool { return t.ID == r.id() }
	if at := slices.IndexFunc(tokens, named); at >= 0 {
		return tokens[at].Token, nil
	}
	return pat.Token{}, cmp.Or(err, errTokenOver)
}

// revokeToken revokes a token of the user and redirects to the page.
func (s *Settings) revokeToken(r *request, token pat.Token) error {
	event := r.event(&token.WorkspaceID, audit.TokenRevoked, "token:"+token.ID.String(),
		map[string]any{"name": token.Name, "reason": pat.ByUser})
	revoked, err := s.Store.RevokeToken(r.ctx(), r.user.User.ID, token.WorkspaceID, token.ID, event)
	if err == nil && !revoked {
		err = errTokenOver
	}
	return r.done(err, "The token "+token.Name+" was revoked.")
}
