package settings

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A tokensView is Settings → Developers: the user's tokens for one workspace.
type tokensView struct {
	developerPage
	List   listPage
	Tokens []ui.Token
	Ended  []ui.Token
}

func (*tokensView) Template() string { return "tokens" }

func (s *Settings) showTokens(r *request) error { return s.listTokens(r, nil) }

// listTokens shows the tokens, and what a form did.
func (s *Settings) listTokens(r *request, result *formResult) error {
	tokens, err := s.Store.Tokens(r.ctx(), r.user.User.ID, r.here.Workspace.ID)
	if err != nil {
		return err
	}
	view := &tokensView{}
	view.Outcome = result
	named := map[string]pat.Token{}
	for _, t := range tokens {
		named[t.ID.String()] = t
	}
	for _, t := range tokens {
		row := tokenRow(t)
		if t.Active(s.Now()) {
			row.Replaces = replaces(t, named, s.Now())
			view.Tokens = append(view.Tokens, row)
			continue
		}
		row.Ended, row.EndedAt = endedToken(t)
		view.Ended = append(view.Ended, row)
	}
	view.Tokens, view.List = listing[ui.Token]{
		Of:    "tokens",
		Path:  r.path(r.section),
		First: func(t ui.Token) bool { return result != nil && t.ID == result.ID },
		Matches: func(t ui.Token, words string) bool {
			return contains(words, t.Name, strings.Join(t.Permissions.Strings(), " "))
		},
	}.Select(r.query(), view.Tokens)
	view.Ended = view.Ended[:min(len(view.Ended), pageSize)]
	return s.showDeveloper(r, view)
}

func tokenRow(t pat.Token) ui.Token {
	return ui.Token{
		ID:          t.ID.String(),
		Name:        t.Name,
		Permissions: t.Permissions,
		Created:     t.Created,
		Expires:     t.Expires,
		LastUsed:    t.LastUsed,
	}
}

// replaces returns the creation time of the active token that t replaces, or nil.
func replaces(t pat.Token, named map[string]pat.Token, now time.Time) *time.Time {
	if t.ReplacesID == nil {
		return nil
	}
	former, listed := named[t.ReplacesID.String()]
	if !listed || !former.Active(now) {
		return nil
	}
	return &former.Created
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

func (*newTokenView) Template() string { return "newtoken" }

func (s *Settings) showNewToken(r *request) error { return s.tokenForm(r, &newTokenView{Days: 30}) }

func (s *Settings) tokenForm(r *request, view *newTokenView) error {
	view.Title, view.Lifetime = "New token", pat.Lifetimes()
	return s.showDeveloper(r, view)
}

// createToken takes name, days and permissions.
func (s *Settings) createToken(r *request) error {
	days, _ := strconv.Atoi(r.form.Get("days")) // text that is not a number becomes 0, which is not a choice
	wish := pat.Request{Name: r.form.Get("name"), Days: days, Permissions: r.form["permissions"]}
	labels := map[string]string{"name": "Name", "days": "Expires after", "permissions": "Permissions"}
	for _, refusal := range wish.Refusals(r.here.Permissions) {
		r.reject(ui.ProblemAt(refusal.Field, "token-"+refusal.Field, labels[refusal.Field], refusal.Message))
	}
	if err := s.reauthenticate(r, "token"); err != nil {
		return err
	}
	if r.rejected("The token was not created.") {
		return s.tokenForm(r, &newTokenView{Name: wish.Name, Days: days, Chosen: perm.FromStrings(wish.Permissions)})
	}
	token, err := wish.Accept(r.here.Permissions, s.Now())
	if err != nil {
		return err
	}
	return s.saveToken(r, token, nil)
}

func (s *Settings) showTokenReplacement(r *request) error {
	token, err := s.ownToken(r)
	if err != nil {
		return err
	}
	return s.showReplacement(r, &replacementView{ID: token.ID.String(), Name: token.Name})
}

// replaceToken takes id. It creates a token with the name, lifetime and permissions of another, without permissions
// that the user has lost. The other token ends when the new one is first used.
func (s *Settings) replaceToken(r *request) error {
	former, err := s.ownToken(r)
	if err != nil {
		return err
	}
	if err := s.reauthenticate(r, former.ID.String()); err != nil {
		return err
	}
	if r.rejected("Nothing was created.") {
		return s.showReplacement(r, &replacementView{ID: former.ID.String(), Name: former.Name})
	}
	permissions := former.Permissions.Intersect(r.here.Permissions)
	wish := pat.Request{Name: former.Name, Days: former.Days(), Permissions: permissions.Strings()}
	token, err := wish.Accept(r.here.Permissions, s.Now())
	if _, refused := errors.AsType[*pat.Refusal](err); refused {
		r.refuse(http.StatusBadRequest,
			"The token was not replaced, because you no longer have any of its permissions.")
		return s.listTokens(r, nil)
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
		return s.listTokens(r, &formResult{
			Heading: "This token was already created",
			Text: "Its value was shown once and cannot be shown again. If you did not save it, revoke the token " +
				"and create another.",
		})
	}
	return s.listTokens(r, &formResult{
		Heading: "Copy your new token now",
		ID:      token.ID.String(),
		Label:   "Token " + token.Name,
		Value:   value.Reveal(),
		Curl: "curl " + s.BaseURL + "/v1/programmes/programmes -H \"Authorization: Bearer " + value.Reveal() +
			"\" -H \"X-Tenant-Id: " + r.here.Workspace.ID.String() + "\"",
		Text: "It is shown only once. Store it like a password, and never in a repository.",
	})
}

// ownToken returns the active token that the form names. If there is none, it redirects and returns errAnswered.
func (s *Settings) ownToken(r *request) (pat.Token, error) {
	tokens, err := s.Store.Tokens(r.ctx(), r.user.User.ID, r.here.Workspace.ID)
	if err != nil {
		return pat.Token{}, err
	}
	for _, t := range tokens {
		if t.ID == r.id() && t.Active(s.Now()) {
			return t, nil
		}
	}
	return pat.Token{}, r.gone(r.path(r.section), "The token is no longer active.")
}

// revokeToken takes id.
func (s *Settings) revokeToken(r *request) error {
	token, err := s.ownToken(r)
	if err != nil {
		return err
	}
	return s.revoke(r, token)
}
