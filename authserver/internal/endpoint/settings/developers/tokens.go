package developers

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
)

// createToken serves POST /settings/developers/tokens: name, days, permissions.
func (h *Handler) createToken() http.Handler {
	return h.form(Section, func(v *settings.Request, here settings.Scope) error {
		days, _ := strconv.Atoi(v.Form.Get("days")) // text that is not a number becomes 0, which is not a choice
		wish := pat.Request{Name: v.Form.Get("name"), Days: days, Permissions: v.Form["permissions"]}
		var problems ui.Problems
		for _, refusal := range wish.Refusals(here.Permissions) {
			problems = append(problems, tokenProblem(refusal.Field, refusal.Message))
		}
		status, text, err := h.reauthenticate(v, len(problems) == 0)
		if err != nil {
			return err
		}
		if text != "" {
			problems = append(problems, passwordProblem("token", text))
		}
		if len(problems) > 0 {
			return h.newToken(v, here, status, func(page *newTokenView) {
				page.Refuse("The token was not created.", problems...)
				page.Name, page.Days, page.Chosen = wish.Name, days, perm.FromStrings(wish.Permissions)
			})
		}
		token, err := wish.Accept(here.Permissions, h.Now())
		if err != nil {
			return err
		}
		return h.saveToken(v, here, token, nil)
	})
}

// replaceToken serves POST /settings/developers/tokens/replace. It creates a token with the name, lifetime and
// permissions of another, without permissions that the user has lost. The other token ends when the new one is first
// used.
func (h *Handler) replaceToken() http.Handler {
	return h.form(Section, func(v *settings.Request, here settings.Scope) error {
		former, err := h.ownToken(v, here)
		if err != nil {
			return err
		}
		status, note, err := h.reauthenticate(v, true)
		if err != nil {
			return err
		}
		if note != "" {
			return h.showReplacement(v, here, status, ofToken(former), note)
		}
		permissions := former.Permissions.Intersect(here.Permissions)
		wish := pat.Request{Name: former.Name, Days: former.Days(), Permissions: permissions.Strings()}
		token, err := wish.Accept(here.Permissions, h.Now())
		if _, refused := errors.AsType[*pat.Refusal](err); refused {
			return h.listTokens(v, here, http.StatusBadRequest, func(page *tokensView) {
				page.Problem = "The token was not replaced, because you no longer have any of its permissions."
			})
		}
		if err != nil {
			return err
		}
		token.ReplacesID = &former.ID
		return h.saveToken(v, here, token, &former)
	})
}

// saveToken stores a token and shows its value, only this time. The form's key names the token, so the same form sent
// again does not create another.
func (h *Handler) saveToken(v *settings.Request, here settings.Scope, token pat.Token, former *pat.Token) error {
	value, err := credential.PersonalAccessToken.New(rand.Reader)
	if err != nil {
		return fmt.Errorf("create token: %w", err)
	}
	token.ID, token.UserID, token.WorkspaceID = v.Key.Makes, v.Current.User.ID, here.Workspace.ID
	detail := map[string]any{
		"name":        token.Name,
		"permissions": token.Permissions.Strings(),
		"expires":     token.Expires.UTC().Format(time.RFC3339),
	}
	if former != nil {
		detail["replaces"] = former.ID.String()
	}
	saved, err := h.Store.SaveToken(v.R.Context(), token, credential.Hash(value.Reveal()),
		v.EventIn(here, audit.TokenCreated, "token:"+token.ID.String(), detail, token.Permissions...))
	if err != nil {
		return err
	}
	result := &outcome{
		Heading: "Copy your new token now",
		ID:      token.ID.String(),
		Label:   "Token " + token.Name,
		Value:   value.Reveal(),
		Curl: "curl " + h.BaseURL + "/v1/programmes/programmes -H \"Authorization: Bearer " + value.Reveal() +
			"\" -H \"X-Tenant-Id: " + here.Workspace.ID.String() + "\"",
		Text: "It is shown only once. Store it like a password, and never in a repository.",
	}
	if !saved {
		result = &outcome{
			Heading: "This token was already created",
			Text: "Its value was shown once and cannot be shown again. If you did not save it, revoke the token " +
				"and create another.",
		}
	}
	return h.listTokens(v, here, http.StatusOK, func(page *tokensView) { page.Outcome = result })
}

// ownToken returns the active token that the form names. If there is none, it writes the response and returns answered.
func (h *Handler) ownToken(v *settings.Request, here settings.Scope) (pat.Token, error) {
	id, invalid := identity.Parse(cmp.Or(v.Form.Get("id"), v.R.URL.Query().Get("id")))
	tokens, err := h.Store.Tokens(v.R.Context(), v.Current.User.ID, here.Workspace.ID)
	if err != nil {
		return pat.Token{}, err
	}
	for _, t := range tokens {
		if invalid == nil && t.ID == id && t.Active(h.Now()) {
			return t, nil
		}
	}
	if err := h.Done(v, here.Path(Section), "The token is no longer active."); err != nil {
		return pat.Token{}, err
	}
	return pat.Token{}, settings.ErrAnswered
}

// revokeToken serves POST /settings/developers/tokens/revoke.
func (h *Handler) revokeToken() http.Handler {
	return h.form(Section, func(v *settings.Request, here settings.Scope) error {
		token, err := h.ownToken(v, here)
		if err != nil {
			return err
		}
		return h.RevokeToken(v, h.Store, token, here.Path(Section))
	})
}
