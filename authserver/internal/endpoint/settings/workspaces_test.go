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
	t.Parallel()
	site := browsertest.Own(t)
	ada, first := inTwo(site)
	own := site.Fixture.WorkspaceID.String()
	browser := site.SignedIn(ada)
	bad := browser.Post(
		connectors+"/policy",
		policyForm(browser.Get(connectors), "31", anyPlatform, perm.ProgrammesRead),
	)
	for section, page := range map[string]*browsertest.Page{
		developers: browser.Post(tokens+"/revoke", url.Values{
			"key": browser.Get(newToken).Form(tokens)["key"], "tenant": {first},
		}).Follow(),
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
	user := browser.Get("/settings/user")
	if to := user.Send(switching, browsertest.Fields{"tenant": own}).Location(); to != "/settings/user" {
		t.Errorf("from a page of no workspace, it leads to %q", to)
	}
	for _, page := range []string{developers, connectors, "/settings/audit", "/settings/user"} {
		if got := browser.Get(page).Form(switching).Get("tenant"); got != own {
			t.Errorf("%s opens in %q", page, got)
		}
	}
	if got := browser.Get(developers + "?tenant=" + first).Form(switching).Get("tenant"); got != first {
		t.Errorf("the URL names another workspace, but the page is of %q", got)
	}
}

// A workspace that was visited stays chosen (contract, section 7), for every page and for a form without a workspace.
func TestWorkspace_StaysChosenOnceVisited(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada, first := inTwo(site)
	browser := site.SignedIn(ada)
	for _, workspace := range []string{first, site.Fixture.WorkspaceID.String(), first} {
		if got := browser.Get(applications + "?tenant=" + workspace).Status; got != http.StatusOK {
			t.Fatal(got)
		}
		for _, page := range []string{developers, newToken, hooks, connectors, "/settings/user", "/settings/apps"} {
			if got := browser.Get(page).Form(switching).Get("tenant"); got != workspace {
				t.Errorf("%s opens in %q", page, got)
			}
		}
		form := browser.Get(newApp).Form(apps)
		form.Del("tenant")
		if page := browser.Post(apps, form); page.Form(switching).Get("tenant") != workspace {
			t.Errorf("a form without a workspace is about another one: %s", page.Text())
		}
	}
	elsewhere := site.Fixture.Workspace("Zion Hall").String()
	if got := browser.Get(members + "?tenant=" + elsewhere).Status; got != http.StatusForbidden {
		t.Fatal(got)
	}
	if got := browser.Get(developers).Form(switching).Get("tenant"); got != first {
		t.Error("a workspace of which the user is not a member is chosen")
	}
}

// The switcher is on every page, also if the user may open the page in only one workspace.
func TestWorkspaceSwitcher_IsOnEveryPage(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada, other := developer(site, perm.ProgrammesRead), site.Fixture.Workspace("Abbey Lane Larder")
	site.Fixture.Join(other, ada.ID, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	for _, path := range []string{"/settings/user", developers, newToken, applications, connectors, connectionLog} {
		page := browser.Get(path)
		if len(page.Elements("option")) < 2 {
			t.Errorf("%s has no switcher", path)
			continue
		}
		to := page.Send(switching, browsertest.Fields{"tenant": other.String()}).Follow()
		refused := to.HasText("You cannot manage API access in this workspace")
		if to.Form(switching).Get("tenant") != other.String() || refused != (path != "/settings/user") {
			t.Errorf("%s: the switcher leads to %s", path, to.Text())
		}
	}
	// The chosen workspace is the default of every page, also of those that the user may not open there.
	for _, path := range []string{developers, connectors, "/settings/audit"} {
		page := browser.Get(path)
		wantsWords(t, page, http.StatusForbidden, "In Abbey Lane Larder, you do not have the permission")
		if page.Form(switching).Get("tenant") != other.String() {
			t.Errorf("%s is about another workspace", path)
		}
	}
}

// Without a choice, every page is about the same workspace, and names of organisations are shown only where the names
// of workspaces are equal.
func TestWorkspaceSwitcher_HasOneDefault(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada, other := developer(site, perm.ProgrammesRead), site.Fixture.Workspace("Abbey Lane Larder")
	site.Fixture.Join(other, ada.ID, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	for _, path := range []string{"/settings/user", developers, connectors, "/settings/audit", "/settings/apps"} {
		page := browser.Get(path)
		if got := page.Form(switching).Get("tenant"); got != site.Fixture.WorkspaceID.String() {
			t.Errorf("%s is about %s", path, got)
		}
		if strings.Contains(page.Body, "Abbey Lane Larder (") {
			t.Errorf("%s names an organisation", path)
		}
	}
	third := site.Fixture.Workspace("Abbey Lane Larder")
	site.Fixture.Join(third, ada.ID, perm.ProgrammesRead)
	if page := browser.Get("/settings/user"); strings.Count(page.Body, ">Abbey Lane Larder (") != 2 {
		t.Error("two workspaces with one name cannot be told apart")
	}
}

func TestWorkspaceSwitcher_StoresOnlyOwnWorkspaces(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada, first := inTwo(site)
	other := site.Fixture.Workspace("Zion Hall").String()
	browser := site.SignedIn(ada)
	for _, tenant := range []string{other, "x", "//elsewhere.example"} {
		page := browser.Get("/settings/audit").Send(switching, browsertest.Fields{"tenant": tenant})
		if to := page.Location(); to != "/settings/audit" && to != "/settings/audit?tenant="+other {
			t.Errorf("%q leads to %q", tenant, to)
		}
		if got := browser.Get("/settings/audit").Form(switching).Get("tenant"); got != first {
			t.Errorf("after %q, the page is of %q", tenant, got)
		}
	}
	if to := browser.Get("/settings/audit").Send(switching, browsertest.Fields{
		"section": "//elsewhere.example",
	}).Location(); to != "/settings/user" {
		t.Errorf("an unknown section leads to %q", to)
	}
	if page := browser.Post(switching, url.Values{"tenant": {first}}); page.Status != http.StatusForbidden {
		t.Errorf("without a key: %d", page.Status)
	}
}

func TestNavigation_KeepsWorkspace(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada, first := inTwo(site)
	browser := site.SignedIn(ada)
	ofWorkspace := []string{developers, connectors, "/settings/audit"}
	for _, workspace := range []string{first, site.Fixture.WorkspaceID.String()} {
		for _, from := range ofWorkspace {
			page := browser.Get(from + "?tenant=" + workspace)
			for _, to := range ofWorkspace {
				if !strings.Contains(page.Body, `<a href="`+to+"?tenant="+workspace+`"`) {
					t.Errorf("the link from %s to %s loses the workspace", from, to)
				}
			}
			if strings.Contains(page.Body, `"/settings/user?`) {
				t.Errorf("%s: a link names the workspace although its page has none", from)
			}
		}
	}
	if page := browser.Get("/settings/user"); !strings.Contains(page.Body, `<a href="/settings/connectors"`) {
		t.Error("want a link without a workspace")
	}
}

func TestForms_OutdatedFormLeadsBackToWorkspace(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada, _ := inTwo(site)
	browser := site.SignedIn(ada)
	workspace := site.Fixture.WorkspaceID.String()
	for _, path := range posts {
		if !strings.HasPrefix(path, developers) && !strings.HasPrefix(path, connectors) {
			continue
		}
		section := strings.TrimSuffix(pageOf(path), "/new")
		page := section + "?tenant=" + workspace
		outdated := browser.Post(path, url.Values{"key": {"x"}, "tenant": {workspace}})
		if outdated.Status != http.StatusForbidden || !strings.Contains(outdated.Body, `href="`+page+`"`) {
			t.Errorf("%s, outdated: %d %s", path, outdated.Status, outdated.Text())
		}
		if to := site.Browser().Post(path, url.Values{
			"tenant": {workspace},
		}).Location(); to != "/login?return="+url.QueryEscape(page)+"&unsent=1" {
			t.Errorf("%s, signed out: to %q", path, to)
		}
		if to := site.Browser().Post(path, url.Values{
			"tenant": {"//elsewhere.example"},
		}).Location(); to != "/login?return="+url.QueryEscape(section)+"&unsent=1" {
			t.Errorf("%s, about no workspace: to %q", path, to)
		}
	}
}

func TestConnectorPolicy_MessagesNameWorkspace(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada, _ := inTwo(site)
	app := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	site.Redeemed(app, ada.ID)
	browser := site.SignedIn(ada)
	warning := browser.Post(
		connectors+"/policy",
		policyForm(
			browser.Get(connectors+"?tenant="+site.Fixture.WorkspaceID.String()),
			"7",
			anyPlatform,
			perm.ProgrammesRead,
		),
	)
	if !warning.HasText("existing connections in Riverside Food Bank") {
		t.Errorf("%s", warning.Text())
	}
	if saved := browser.Post(connectors+"/policy", warning.Form(connectors+"/policy")).Follow(); !saved.HasText(
		"The policy of Riverside Food Bank was saved.",
	) {
		t.Errorf("%s", saved.Text())
	}
}
