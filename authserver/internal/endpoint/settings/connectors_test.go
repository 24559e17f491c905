package settings_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
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
	t.Parallel()
	site := browsertest.Own(t)
	browser := site.SignedIn(developer(site))
	page := browser.Get(connectors)
	form := page.Form(connectors + "/policy")
	if page.Status != http.StatusOK || !slices.Equal(form["platforms"], anyPlatform) ||
		!slices.Equal(form["permissions"], perm.ForConnectors().Strings()) ||
		form.Get("days") != "30" {
		t.Fatalf("%d %v", page.Status, form)
	}
	for _, words := range []string{
		"Riverside Food Bank",
		"Claude",
		"ChatGPT",
		"Other applications",
		"Read form submissions",
		"Personal data",
		"Makes changes",
	} {
		if !page.HasText(words) {
			t.Errorf("does not say %q", words)
		}
	}
	saved := browser.Post(connectors+"/policy", policyForm(page, " 7 ", claudeAlone, readAndWrite...)).Follow()
	form = saved.Form(connectors + "/policy")
	if !saved.HasText("The policy of Riverside Food Bank was saved.") ||
		!slices.Equal(form["platforms"], claudeAlone) ||
		len(form["permissions"]) != 2 ||
		form.Get("days") != "7" {
		t.Errorf("%v %s", form, saved.Text())
	}
	if again := browser.Post(connectors+"/policy", form).Follow(); !again.HasText("was not changed") {
		t.Errorf("%s", again.Text())
	}
	none := browser.Post(connectors+"/policy", policyForm(saved, "7", nil, readAndWrite...)).Follow()
	if form := none.Form(connectors + "/policy"); len(form["platforms"]) != 0 ||
		!none.HasText("The policy of Riverside Food Bank was saved.") {
		t.Errorf("no platform: %v", form)
	}
	log := browser.Get("/settings/audit")
	for _, words := range []string{
		"Changed the connector policy",
		"access lasts 7 days instead of 30",
		"no longer allowed: See public forms",
		"allowed platforms: Claude",
		"allowed platforms: none",
	} {
		if !log.HasText(words) {
			t.Errorf("the audit log does not say %q: %s", words, log.Text())
		}
	}
}

func TestConnectorPolicy_BadFormKeepsInput(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	browser := site.SignedIn(developer(site))
	for name, c := range map[string]struct {
		days        string
		platforms   []string
		permissions []perm.Permission
		words       string
	}{
		"no number":     {"a week", anyPlatform, readAndWrite, "Enter a number of days from 1 to 30"},
		"nothing":       {"", anyPlatform, readAndWrite, "Enter a number of days from 1 to 30"},
		"too long":      {"31", claudeAlone, readAndWrite, "Enter a number of days from 1 to 30"},
		"no permission": {"5", claudeAlone, nil, "at least one permission"},
		"write without read": {
			"5",
			claudeAlone,
			[]perm.Permission{perm.ProgrammesWrite},
			"requires “See programmes”",
		},
		"not for connectors": {
			"5",
			claudeAlone,
			[]perm.Permission{perm.AccountAPIAccess},
			"Connectors cannot have this permission",
		},
		"an unknown platform": {"5", []string{"claude", "gemini"}, readAndWrite, "claude, chatgpt or other"},
		"a very long number": {
			"99999999999999999999",
			claudeAlone,
			readAndWrite,
			"Enter a number of days from 1 to 30",
		},
		"what looks like HTML": {`"><b>7`, claudeAlone, readAndWrite, "Enter a number of days from 1 to 30"},
	} {
		page := browser.Post(
			connectors+"/policy",
			policyForm(browser.Get(connectors), c.days, c.platforms, c.permissions...),
		)
		if page.Status != http.StatusBadRequest || !page.HasText(c.words) {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
			continue
		}
		if !page.HasText("The policy was not saved.") || !strings.Contains(page.Body, `<li><a href="#`) {
			t.Errorf("%s: no link to the field: %s", name, page.Text())
		}
		if back := page.Form(connectors + "/policy"); back.Get("days") != c.days ||
			!slices.Contains(back["platforms"], "claude") {
			t.Errorf("%s: the form came back as %v", name, back)
		}
	}
	if n := site.Count(`select count(*) from account.connector_policies`); n != 0 {
		t.Errorf("%d policies", n)
	}
}

func TestConnectorPolicy_LoweringNeedsConfirmationAndNarrowsGrants(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := developer(site, readAndWrite...)
	app := site.Fixture.Connector(browsertest.Resource, readAndWrite...)
	writer := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesWrite)
	first, second, third := site.Redeemed(app, ada.ID), site.Redeemed(app, ada.ID), site.Redeemed(writer, ada.ID)
	browser := site.SignedIn(ada)
	site.Consent(app, ada.ID) // approvals whose code was not redeemed are no connections
	site.Consent(writer, ada.ID)
	warning := browser.Post(
		connectors+"/policy",
		policyForm(browser.Get(connectors), "7", anyPlatform, perm.ProgrammesRead),
	)
	for _, words := range []string{
		"1 connection will end immediately.",
		"2 connections will lose permissions.",
		"2 connections will expire sooner.",
	} {
		if warning.Status != http.StatusOK || !warning.HasText(words) {
			t.Errorf("%d, without %q: %s", warning.Status, words, warning.Text())
		}
	}
	if n := site.Count(`select count(*) from account.grants
		where state = 'active' and narrowed_at is null and ends_at > now() + interval '29 days'`); n != 3 {
		t.Fatalf("%d grants are unchanged before the confirmation, want 3", n)
	}
	form := warning.Form(connectors + "/policy")
	if form.Get("confirm") != "yes" {
		t.Fatalf("no confirmation requested: %v", form)
	}
	page := browser.Post(connectors+"/policy", form).Follow()
	if !page.HasText(
		"The policy of Riverside Food Bank was saved. 1 connection ended. 2 connections lost permissions. 2 " +
			"connections got an earlier expiry date.",
	) {
		t.Errorf("%s", page.Text())
	}
	for _, g := range []grant.Grant{first, second} {
		if site.Count(
			`select count(*) from account.grants where id = $1 and state = 'active'
			and permissions = '{programmes:read:programmes}' and ends_at < now() + interval '8 days'`,
			g.ID,
		) != 1 {
			t.Error("a grant is not narrowed")
		}
	}
	if site.Count(
		`select count(*) from account.grants where id = $1 and revoke_reason = 'connector_policy'`,
		third.ID,
	) != 1 {
		t.Error("the grant without remaining permissions is not revoked")
	}
	mine := browser.Get("/settings/apps")
	for _, words := range []string{
		"reduced this access on",
		"because the connector policy no longer allows it",
	} {
		if !mine.HasText(words) {
			t.Errorf("Connected apps does not say %q: %s", words, mine.Text())
		}
	}
	log := browser.Get("/settings/audit")
	for _, words := range []string{
		"The connector policy reduced the access of Claude",
		"Removed: Add and change programmes",
		"Expires on",
		"1 connection ended",
		"An approval of Claude ended before it was used",
	} {
		if !log.HasText(words) {
			t.Errorf("the audit log does not say %q: %s", words, log.Text())
		}
	}
	raised := browser.Post(connectors+"/policy", policyForm(page, "30", anyPlatform, perm.ForConnectors()...))
	if raised.Status != http.StatusSeeOther ||
		site.Count(
			`select count(*) from account.grants where state = 'active'
			and permissions = '{programmes:read:programmes}' and ends_at < now() + interval '8 days'`,
		) != 2 {
		t.Errorf("raising the policy: %d, or it widened grants", raised.Status)
	}
}

func TestConnectorPolicy_OfOtherWorkspaceCannotBeChanged(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	elsewhere := site.Fixture.Workspace("Hillside Youth Club")
	eve := site.Stranger()
	site.Fixture.Join(elsewhere, eve.ID, perm.AccountAPIAccess)
	site.Fixture.Join(site.Fixture.WorkspaceID, eve.ID, perm.ProgrammesRead)
	browser := site.SignedIn(eve)
	form := policyForm(browser.Get(connectors), "1", claudeAlone, perm.ProgrammesRead)
	form.Set("tenant", site.Fixture.WorkspaceID.String())
	if page := browser.Post(connectors+"/policy", form); page.Status != http.StatusForbidden {
		t.Errorf("%d", page.Status)
	}
	if n := site.Count(`select count(*) from account.connector_policies`); n != 0 {
		t.Error("the policy was changed")
	}
}
