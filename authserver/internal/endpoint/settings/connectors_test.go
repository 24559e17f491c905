package settings_test

import (
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func policyForm(page *browsertest.Page, days string, platforms []string, permissions ...perm.Permission) url.Values {
	form := page.Form(connectors + "/policy")
	form.Del("confirm")
	form["platforms"], form["permissions"] = platforms, perm.NewSet(permissions...).Strings()
	form.Set("days", days)
	return form
}

var (
	claudeAlone  = []string{"claude"}
	anyPlatform  = []string{"claude", "chatgpt", "other"}
	readAndWrite = []perm.Permission{perm.ProgrammesRead, perm.ProgrammesWrite}
)

func TestConnectorPolicy_IsShownAndSaved(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(developer(site))
	page := browser.Get(connectors)
	const policy = connectors + "/policy"
	page.Keeps(policy, "platforms", "claude chatgpt other", "permissions", perm.ForConnectors().Scope(), "days", "30")
	page.Wants(http.StatusOK, "Riverside Food Bank", "Claude", "ChatGPT", "Other applications", "Read form submissions",
		"Personal data", "Makes changes")
	saved := browser.Post(connectors+"/policy", policyForm(page, " 7 ", claudeAlone, readAndWrite...)).Follow()
	saved.Says("The policy of Riverside Food Bank was saved.")
	saved.Keeps(policy, "platforms", "claude", "permissions", perm.NewSet(readAndWrite...).Scope(), "days", "7")
	browser.Post(policy, saved.Form(policy)).Follow().Says("was not changed")
	none := browser.Post(connectors+"/policy", policyForm(saved, "7", nil, readAndWrite...)).Follow()
	none.Says("The policy of Riverside Food Bank was saved.").Keeps(policy, "platforms", "")
	browser.Get("/settings/audit").Says("Changed the connector policy", "access lasts 7 days instead of 30",
		"no longer allowed: See public forms", "allowed platforms: Claude", "allowed platforms: none")
}

func TestConnectorPolicy_BadFormKeepsInput(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(developer(site))
	for name, c := range map[string]struct {
		days        string
		platforms   []string
		permissions []perm.Permission
		words       string
	}{
		"no number":          {"a week", anyPlatform, readAndWrite, "Enter a number of days from 1 to 30"},
		"nothing":            {"", anyPlatform, readAndWrite, "Enter a number of days from 1 to 30"},
		"too long":           {"31", claudeAlone, readAndWrite, "Enter a number of days from 1 to 30"},
		"no permission":      {"5", claudeAlone, nil, "at least one permission"},
		"write without read": {"5", claudeAlone, []perm.Permission{perm.ProgrammesWrite}, "requires “See programmes”"},
		"not for connectors": {
			"5", claudeAlone, []perm.Permission{perm.AccountAPIAccess}, "Connectors cannot have this permission",
		},
		"an unknown platform": {"5", []string{"claude", "gemini"}, readAndWrite, "claude, chatgpt or other"},
		"a very long number": {
			"99999999999999999999", claudeAlone, readAndWrite, "Enter a number of days from 1 to 30",
		},
		"what looks like HTML": {`"><b>7`, claudeAlone, readAndWrite, "Enter a number of days from 1 to 30"},
	} {
		page := browser.Post(connectors+"/policy",
			policyForm(browser.Get(connectors), c.days, c.platforms, c.permissions...))
		page.As(name).Wants(http.StatusBadRequest, c.words, "The policy was not saved.").Contains(`<li><a href="#`).
			Keeps(connectors+"/policy", "days", c.days)
		if !slices.Contains(page.Form(connectors + "/policy")["platforms"], "claude") {
			t.Errorf("%s: the chosen platform came back unchecked", name)
		}
	}
	site.Rows(0, "connector_policies", "")
}

func TestConnectorPolicy_LoweringNeedsConfirmationAndNarrowsGrants(t *testing.T) {
	site := shared(t)
	ada := developer(site, readAndWrite...)
	app := site.Fixture.Connector(browsertest.Resource, readAndWrite...)
	writer := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesWrite)
	first, second, third := site.Redeemed(app, ada.ID), site.Redeemed(app, ada.ID), site.Redeemed(writer, ada.ID)
	browser := site.SignedIn(ada)
	site.Consent(app, ada.ID) // approvals whose code was not redeemed are no connections
	site.Consent(writer, ada.ID)
	warning := browser.Post(connectors+"/policy",
		policyForm(browser.Get(connectors), "7", anyPlatform, perm.ProgrammesRead))
	warning.Wants(http.StatusOK, "1 connection will end immediately.", "2 connections will lose permissions.",
		"2 connections will expire sooner.")
	site.Rows(3, "grants", `state = 'active' and narrowed_at is null and ends_at > now() + interval '29 days'`)
	form := warning.Form(connectors + "/policy")
	warning.Keeps(connectors+"/policy", "confirm", "yes")
	page := browser.Post(connectors+"/policy", form).Follow()
	page.Says("The policy of Riverside Food Bank was saved. 1 connection ended. 2 connections lost permissions. " +
		"2 connections got an earlier expiry date.")
	for _, g := range []grant.Grant{first, second} {
		site.Rows(1, "grants", `id = $1 and state = 'active'
			and permissions = '{programmes:read:programmes}' and ends_at < now() + interval '8 days'`, g.ID)
	}
	site.Rows(1, "grants", `id = $1 and revoke_reason = 'connector_policy'`, third.ID)
	browser.Get("/settings/apps").Says("reduced this access on", "because the connector policy no longer allows it")
	browser.Get("/settings/audit").Says("The connector policy reduced the access of Claude",
		"Removed: Add and change programmes", "Expires on", "1 connection ended",
		"An approval of Claude ended before it was used")
	browser.Post(connectors+"/policy", policyForm(page, "30", anyPlatform, perm.ForConnectors()...)).
		Wants(http.StatusSeeOther)
	site.Rows(2, "grants", `state = 'active'
			and permissions = '{programmes:read:programmes}' and ends_at < now() + interval '8 days'`)
}

func TestConnectorPolicy_OfOtherWorkspaceCannotBeChanged(t *testing.T) {
	site := shared(t)
	elsewhere := site.Fixture.Workspace("Hillside Youth Club")
	eve := site.Stranger()
	site.Fixture.Join(elsewhere, eve.ID, perm.AccountAPIAccess)
	site.Fixture.Join(site.Fixture.WorkspaceID, eve.ID, perm.ProgrammesRead)
	browser := site.SignedIn(eve)
	form := policyForm(browser.Get(connectors), "1", claudeAlone, perm.ProgrammesRead)
	form.Set("tenant", site.Fixture.WorkspaceID.String())
	browser.Post(connectors+"/policy", form).Wants(http.StatusForbidden)
	site.Rows(0, "connector_policies", "")
}
