package developers

import (
	"net/http"
	"strings"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/perm"
)

// A tokensView is Settings → Developers: the user's tokens for one workspace.
type tokensView struct {
	common
	List   settings.List
	Tokens []ui.Token
	Ended  []ui.Token
}

func (*tokensView) Template() string { return "tokens" }

// showTokens serves GET /settings/developers.
func (h *Handler) showTokens(v *settings.Request, here settings.Scope) error {
	return h.listTokens(v, here, http.StatusOK, func(*tokensView) {})
}

// listTokens shows the tokens, changed by adjust.
func (h *Handler) listTokens(v *settings.Request, here settings.Scope, status int, adjust func(*tokensView)) error {
	tokens, err := h.Store.Tokens(v.R.Context(), v.Current.User.ID, here.Workspace.ID)
	if err != nil {
		return err
	}
	common, err := h.common(v, here, Section)
	if err != nil {
		return err
	}
	view := &tokensView{common: common}
	named := map[string]pat.Token{}
	for _, t := range tokens {
		named[t.ID.String()] = t
	}
	for _, t := range tokens {
		row := ui.Token{
			ID:          t.ID.String(),
			Name:        t.Name,
			Permissions: t.Permissions,
			Created:     t.Created,
			Expires:     t.Expires,
			LastUsed:    t.LastUsed,
		}
		if t.Active(h.Now()) {
			row.Replaces = replaces(t, named, h.Now())
			view.Tokens = append(view.Tokens, row)
			continue
		}
		row.Ended, row.EndedAt = endedToken(t)
		view.Ended = append(view.Ended, row)
	}
	adjust(view)
	shown := func(t ui.Token) bool {
		return view.Outcome != nil && t.ID == view.Outcome.ID
	}
	view.Tokens, view.List = settings.Listing[ui.Token]{
		Of:    "tokens",
		Path:  here.Path(Section),
		First: shown,
		Matches: func(t ui.Token, words string) bool {
			return settings.Contains(words, t.Name, strings.Join(t.Permissions.Strings(), " "))
		},
	}.Select(v.R.URL.Query(), view.Tokens)
	view.Ended = view.Ended[:min(len(view.Ended), settings.PageSize)]
	h.Pages.Show(v.W, v.R, status, view)
	return nil
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
	common
	Days     int
	Lifetime []int
	Name     string
	Chosen   perm.Set
}

func (*newTokenView) Template() string { return "newtoken" }

// showNewToken serves GET /settings/developers/new.
func (h *Handler) showNewToken(v *settings.Request, here settings.Scope) error {
	return h.newToken(v, here, http.StatusOK, func(*newTokenView) {})
}

// newToken shows the form, changed by adjust.
func (h *Handler) newToken(v *settings.Request, here settings.Scope, status int, adjust func(*newTokenView)) error {
	common, err := h.common(v, here, Section)
	if err != nil {
		return err
	}
	common.Title = "New token"
	view := &newTokenView{common: common, Days: 30, Lifetime: pat.Lifetimes()}
	adjust(view)
	h.Pages.Show(v.W, v.R, status, view)
	return nil
}
