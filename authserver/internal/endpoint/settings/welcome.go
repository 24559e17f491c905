package settings

import (
	"net/url"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A welcomeView is the page of a user who has joined a workspace: what the user can do there now.
type welcomeView struct {
	page
	Steps []string // names of at most three things; the page has their words
	Here  string   // local path of the page, as a parameter of the pages that lead back
}

// mostSteps is how many things the page names: more would be a menu.
const mostSteps = 3

// showWelcome takes tenant. It needs no second factor, because it is where a new member learns that one is needed.
func (s *Settings) showWelcome(r *request) error {
	own, member := r.membership(r.form.Get("tenant"))
	if !member {
		return r.forbid(ui.MessageOf("no member", ""))
	}
	if err := r.visit(own); err != nil {
		return err
	}
	user, factor := r.user.User.ID, r.user.SecondFactor
	assistants := placeOf(own, s.BaseURL+"/mcp", read(r, s.Store.Modules, user)[own.Workspace.ID])
	required := own.Workspace.SecondFactor && !factor.Satisfies()
	view := &welcomeView{Here: url.QueryEscape(r.path(r.section))}
	for _, step := range []struct {
		name string
		fits bool
	}{
		{"use two-step", required && factor.Has},
		{"add two-step", required && !factor.Has},
		{"assistant", own.Workspace.LLMIntegration && assistants.Missing == "" && len(assistants.Allowed) > 0},
		{"members", own.Permissions.Has(perm.AccountReadMembers)},
		{"passkey", s.Passkeys && !required && !read(r, s.Store.HasPasskey, user)},
		{"token", own.Permissions.Has(perm.AccountAPIAccess)},
		{"app", !required && !factor.Has},
		{"profile", true},
		{"security", true},
	} {
		if step.fits && len(view.Steps) < mostSteps {
			view.Steps = append(view.Steps, step.name)
		}
	}
	return r.show("welcome", view)
}
