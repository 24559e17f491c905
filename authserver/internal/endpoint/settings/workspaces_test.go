package settings_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/perm"
)

// inTwo returns a user who manages API access in the fixture's workspace and in a second one, whose name comes first.
func inTwo(site *browsertest.Server) (browsertest.Person, string) {
	ada, first := developer(site, perm.ProgrammesRead), site.Fixture.Workspace("Abbey Lane Larder")
	site.Fixture.Join(first, ada.ID, perm.AccountAPIAccess)
	return ada, first.String()
}

// After a form is sent, the page's URL is the form's, which a GET does not serve.
func TestWorkspaceChooser_LeadsToThePage(t *testing.T) {
	site := browsertest.Start(t)
	ada, first := inTwo(site)
	browser := site.SignedIn(ada)
	bad := browser.Post(
		connectors+"/policy",
		policyForm(browser.Get(connectors), "31", anyPlatform, perm.ProgrammesRead),
	)
	for section, page := range map[string]*browsertest.Page{
		developers:        browser.Get(developers),
		applications:      browser.Get(applications),
		hooks:             browser.Get(hooks),
		connectors:        bad,
		"/settings/audit": browser.Get("/settings/audit"),
	} {
		choosers := 0
		for _, form := range page.Elements("form") {
			if browsertest.Attribute(form, "class") != "chooser" {
				continue
			}
			choosers++
			if at := browsertest.Attribute(form, "action"); at != section ||
				browser.Get(at+"?tenant="+first).Status != http.StatusOK {
				t.Errorf("the workspace chooser of %s leads to %q", section, at)
			}
		}
		if choosers != 1 {
			t.Errorf("%s: %d %d choosers", section, page.Status, choosers)
		}
	}
}

func TestNavigation_KeepsWorkspace(t *testing.T) {
	site := browsertest.Start(t)
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
	site := browsertest.Start(t)
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
	site := browsertest.Start(t)
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
