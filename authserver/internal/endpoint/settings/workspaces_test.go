package settings_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// inTwo returns a user who manages API access in the fixture's workspace and in a second one, whose name comes first.
func inTwo(site *browsertest.Server) (browsertest.Person, string) {
	ada, first := developer(site, perm.ProgrammesRead), site.Fixture.Workspace("Abbey Lane Larder")
	site.Fixture.Join(first, ada.ID, perm.AccountAPIAccess)
	return ada, first.String()
}

const switching = "/settings/workspace"

// After a form is sent, the page's URL is the form's, which a GET does not serve.
func TestWorkspaceSwitcher_LeadsToThePageAndPersists(t *testing.T) {
	site := shared(t)
	ada, first := inTwo(site)
	own := site.Fixture.WorkspaceID.String()
	browser := site.SignedIn(ada)
	bad := browser.Post(connectors+"/policy",
		policyForm(browser.Get(connectors), "31", anyPlatform, perm.ProgrammesRead))
	for section, page := range map[string]*browsertest.Page{
		developers: browser.Post(tokens+"/revoke",
			url.Values{"key": browser.Get(newToken).Form(tokens)["key"], "tenant": {first}}).Follow(),
		applications:      browser.Get(applications),
		hooks:             browser.Get(hooks),
		connectors:        bad,
		"/settings/audit": browser.Get("/settings/audit"),
	} {
		for _, workspace := range []string{own, first} {
			to := page.Send(switching, browsertest.Fields{"tenant": workspace}).Location()
			if to != section+"?tenant="+workspace || browser.Get(to).Status != http.StatusOK {
				t.Errorf("the workspace switcher of %s leads to %q", section, to)
			}
		}
	}
	browser.Get("/settings/user").Send(switching, browsertest.Fields{"tenant": own}).LeadsTo("/settings/user")
	for _, page := range []string{developers, connectors, "/settings/audit", "/settings/user"} {
		browser.Get(page).Keeps(switching, "tenant", own)
	}
	browser.Get(developers+"?tenant="+first).Keeps(switching, "tenant", first)
}

// A workspace that was visited stays chosen (contract, section 7), for every page and for a form without a workspace.
func TestWorkspace_StaysChosenOnceVisited(t *testing.T) {
	site := shared(t)
	ada, first := inTwo(site)
	browser := site.SignedIn(ada)
	for _, workspace := range []string{first, site.Fixture.WorkspaceID.String(), first} {
		browser.Get(applications + "?tenant=" + workspace).Wants(http.StatusOK)
		for _, page := range []string{developers, newToken, hooks, connectors, "/settings/user", "/settings/apps"} {
			browser.Get(page).Keeps(switching, "tenant", workspace)
		}
		form := browser.Get(newApp).Form(apps)
		form.Del("tenant")
		browser.Post(apps, form).Keeps(switching, "tenant", workspace)
	}
	elsewhere := site.Fixture.Workspace("Zion Hall").String()
	browser.Get(members + "?tenant=" + elsewhere).Wants(http.StatusForbidden)
	browser.Get(developers).Keeps(switching, "tenant", first)
}

// The switcher is on every page, also if the user may open the page in only one workspace.
func TestWorkspaceSwitcher_IsOnEveryPage(t *testing.T) {
	site := shared(t)
	ada, other := developer(site, perm.ProgrammesRead), site.Fixture.Workspace("Abbey Lane Larder")
	site.Fixture.Join(other, ada.ID, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	for _, path := range []string{"/settings/user", developers, newToken, applications, connectors, connectionLog} {
		page := browser.Get(path)
		if len(page.Elements("option")) < 2 {
			t.Errorf("%s has no switcher", path)
		}
		to := page.Send(switching, browsertest.Fields{"tenant": other.String()}).Follow().As(path)
		to.Keeps(switching, "tenant", other.String())
		if path != "/settings/user" {
			to.Says("You cannot manage API access in this workspace")
		}
	}
	// The chosen workspace is the default of every page, also of those that the user may not open there.
	for _, path := range []string{developers, connectors, "/settings/audit"} {
		browser.Get(path).Wants(http.StatusForbidden, "In Abbey Lane Larder, you do not have the permission").
			Keeps(switching, "tenant", other.String())
	}
}

// Without a choice, every page is about the same workspace, and names of organisations are shown only where the names
// of workspaces are equal.
func TestWorkspaceSwitcher_HasOneDefault(t *testing.T) {
	site := shared(t)
	ada, other := developer(site, perm.ProgrammesRead), site.Fixture.Workspace("Abbey Lane Larder")
	site.Fixture.Join(other, ada.ID, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	for _, path := range []string{"/settings/user", developers, connectors, "/settings/audit", "/settings/apps"} {
		browser.Get(path).Keeps(switching, "tenant", site.Fixture.WorkspaceID.String()).Omits("Abbey Lane Larder (")
	}
	site.Fixture.Join(site.Fixture.Workspace("Abbey Lane Larder"), ada.ID, perm.ProgrammesRead)
	browser.Get("/settings/user").Times(2, ">Abbey Lane Larder (") // with the organisation's name
}

func TestWorkspaceSwitcher_StoresOnlyOwnWorkspaces(t *testing.T) {
	site := shared(t)
	ada, first := inTwo(site)
	other := site.Fixture.Workspace("Zion Hall").String()
	browser := site.SignedIn(ada)
	for _, tenant := range []string{other, "x", "//elsewhere.example"} {
		page := browser.Get("/settings/audit").Send(switching, browsertest.Fields{"tenant": tenant})
		if to := page.Location(); to != "/settings/audit" && to != "/settings/audit?tenant="+other {
			t.Errorf("%q leads to %q", tenant, to)
		}
		browser.Get("/settings/audit").As(tenant).Keeps(switching, "tenant", first)
	}
	browser.Get("/settings/audit").Send(switching, browsertest.Fields{"section": "//elsewhere.example"}).
		LeadsTo("/settings/user")
	browser.Post(switching, url.Values{"tenant": {first}}).Wants(http.StatusForbidden)
}

func TestNavigation_KeepsWorkspace(t *testing.T) {
	site := shared(t)
	ada, first := inTwo(site)
	browser := site.SignedIn(ada)
	ofWorkspace := []string{developers, connectors, "/settings/audit"}
	for _, workspace := range []string{first, site.Fixture.WorkspaceID.String()} {
		for _, from := range ofWorkspace {
			page := browser.Get(from + "?tenant=" + workspace)
			for _, to := range ofWorkspace {
				page.Contains(`<a href="` + to + "?tenant=" + workspace + `"`)
			}
			page.Omits(`"/settings/user?`)
		}
	}
	browser.Get("/settings/user").Contains(`<a href="/settings/connectors"`)
}

func TestForms_OutdatedFormLeadsBackToWorkspace(t *testing.T) {
	site := shared(t)
	ada, _ := inTwo(site)
	browser := site.SignedIn(ada)
	workspace := site.Fixture.WorkspaceID.String()
	for _, path := range posts {
		if !strings.HasPrefix(path, developers) && !strings.HasPrefix(path, connectors) {
			continue
		}
		section := strings.TrimSuffix(pageOf(path), "/new")
		page := section + "?tenant=" + workspace
		browser.Post(path, url.Values{"key": {"x"}, "tenant": {workspace}}).As(path).
			Wants(http.StatusForbidden).Contains(`href="` + page + `"`)
		site.Browser().Post(path, url.Values{"tenant": {workspace}}).As(path).
			LeadsTo("/login?return=" + url.QueryEscape(page) + "&unsent=1")
		site.Browser().Post(path, url.Values{"tenant": {"//elsewhere.example"}}).As(path).
			LeadsTo("/login?return=" + url.QueryEscape(section) + "&unsent=1")
	}
}

func TestConnectorPolicy_MessagesNameWorkspace(t *testing.T) {
	site := shared(t)
	ada, _ := inTwo(site)
	site.Redeemed(site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead), ada.ID)
	browser := site.SignedIn(ada)
	page := browser.Get(connectors + "?tenant=" + site.Fixture.WorkspaceID.String())
	warning := browser.Post(connectors+"/policy", policyForm(page, "7", anyPlatform, perm.ProgrammesRead))
	warning.Says("existing connections in Riverside Food Bank")
	browser.Post(connectors+"/policy", warning.Form(connectors+"/policy")).Follow().
		Says("The policy of Riverside Food Bank was saved.")
}
