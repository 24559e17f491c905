package settings

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
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
	ID       uuid.UUID // of the token or application, if it made one
	Heading  string
	Text     string
	Label    string
	Value    string // "" if it cannot be shown, or not again
	Client   string // client id of the value, or ""
	Curl     string // a command that uses the token, or ""
	Consent  string // where a new application with a secret sends people, or ""
	Resource string // of a new connector, or ""
}

// A developerView embeds developerPage.
type developerView interface {
	view
	developer() *developerPage
}

// showDeveloper shows a page of the section.
func (s *Settings) showDeveloper(r *request, template string, v developerView) error {
	method, err := s.reauthMethod(r)
	if err != nil {
		return err
	}
	common := v.developer()
	common.BaseURL, common.Held, common.Reauth, common.Outcome = s.BaseURL, r.here.Permissions, method, r.result
	return r.show(template, v)
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
	First                 bool // Note is the form's first error: the field gets the focus
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
	developerPage
	ID, Name  string
	Secret    bool // of an application; otherwise a token
	ExpireOld bool // as typed: a leaked secret must not stay valid because the password was mistyped first
}

func (s *Settings) showReplacement(r *request, view *replacementView) error {
	view.Title = "Replace " + view.Name
	return s.showDeveloper(r, "replacement", view)
}

// A tokensView is Settings → Developers: the user's tokens for one workspace.
type tokensView struct {
	developerPage
	List   listPage
	Tokens []tokenRow
	Ended  []tokenRow
}

// A tokenRow is a token in the list.
type tokenRow struct {
	pat.Token
	Replaces *time.Time // creation time of the active token that it replaces when it is first used, or nil
	Ended    string     // how it ended, or "" while it is active
	EndedAt  time.Time
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
			row.Ended, row.EndedAt = endedToken(t)
			view.Ended = append(view.Ended, row)
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
		First: func(t tokenRow) bool { return r.made(t.ID) },
		Matches: func(t tokenRow, words string) bool {
			return contains(words, t.Name, strings.Join(t.Permissions.Strings(), " "))
		},
	}.Select(r, view.Tokens)
	view.Ended = view.Ended[:min(len(view.Ended), pageSize)]
	return s.showDeveloper(r, "tokens", view)
}

// endedToken returns how and when a token ended.
func endedToken(t pat.Token) (how string, at time.Time) {
	switch {
	case t.RevokedAt == nil:
		return "Expired on", t.Expires
	case t.Reason == pat.Replaced:
		how = "Replaced on"
	case t.Reason == string(grant.MembershipOver):
		how = "Ended with your membership on"
	default:
		how = "Revoked on"
	}
	return how, *t.RevokedAt
}

// A newTokenView is the page with the form for a new token.
type newTokenView struct {
	developerPage
	Days     int
	Lifetime []int
	Name     string
	Chosen   perm.Set
}

// showNewToken shows the form, as typed if it was refused.
func (s *Settings) showNewToken(r *request) error {
	view := &newTokenView{Days: 30, Lifetime: pat.Lifetimes()}
	if r.status != 0 {
		wish := tokenWish(r.form)
		view.Days, view.Name, view.Chosen = wish.Days, wish.Name, perm.FromStrings(wish.Permissions)
	}
	view.Title = "New token"
	return s.showDeveloper(r, "newtoken", view)
}

func tokenWish(form url.Values) pat.Request {
	days, _ := strconv.Atoi(form.Get("days")) // text that is not a number becomes 0, which is not a choice
	return pat.Request{Name: form.Get("name"), Days: days, Permissions: form["permissions"]}
}

// createToken takes name, days and permissions.
func (s *Settings) createToken(r *request) error {
	wish := tokenWish(r.form)
	labels := map[string]string{"name": "Name", "days": "Expires after", "permissions": "Permissions"}
	for _, refusal := range wish.Refusals(r.here.Permissions) {
		r.reject(ui.ProblemAt(refusal.Field, "token-"+refusal.Field, labels[refusal.Field], refusal.Message))
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
	return s.showReplacement(r, &replacementView{ID: token.ID.String(), Name: token.Name})
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
	value, err := credential.PersonalAccessToken.New(rand.Reader)
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
	if !saved {
		return s.showTokens(r.after(formResult{
			Heading: "This token was already created",
			Text: "Its value was shown once and cannot be shown again. If you did not save it, revoke the token " +
				"and create another.",
		}))
	}
	return s.showTokens(r.after(formResult{
		Heading: "Copy your new token now",
		ID:      token.ID,
		Label:   "Token " + token.Name,
		Value:   value.Reveal(),
		Curl: "curl " + s.BaseURL + "/v1/programmes/programmes -H \"Authorization: Bearer " + value.Reveal() +
			"\" -H \"X-Tenant-Id: " + r.here.Workspace.ID.String() + "\"",
		Text: "It is shown only once. Store it like a password, and never in a repository.",
	}))
}

const tokenOver = "The token is no longer active."

// onToken returns the handler of a page or a form that gets the active token that the form names.
func (s *Settings) onToken(handle func(*request, pat.Token) error) handler {
	return func(r *request) error {
		tokens, err := s.Store.Tokens(r.ctx(), r.user.User.ID, r.here.Workspace.ID)
		if err != nil {
			return err
		}
		for _, t := range tokens {
			if t.ID == r.id() && t.Active(s.Now()) {
				return handle(r, t)
			}
		}
		return r.done(tokenOver)
	}
}

// revokeToken revokes a token of the user and redirects to the page.
func (s *Settings) revokeToken(r *request, token pat.Token) error {
	event := r.event(&token.WorkspaceID, audit.TokenRevoked, "token:"+token.ID.String(),
		map[string]any{"name": token.Name, "reason": pat.ByUser})
	revoked, err := s.Store.RevokeToken(r.ctx(), r.user.User.ID, token.WorkspaceID, token.ID, event)
	if err == nil && !revoked {
		return r.done(tokenOver)
	}
	return r.outcome(err, "The token "+token.Name+" was revoked.", nil)
}
