package settings_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
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
	bad := savePolicy(browser, "31", anyPlatform, perm.ProgrammesRead)
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
	stranger := site.Browser()
	for _, path := range ofDevelopers() {
		section := strings.TrimSuffix(pageOf(path), "/new")
		page := section + "?tenant=" + workspace
		browser.Post(path, url.Values{"key": {"x"}, "tenant": {workspace}}).As(path).
			Wants(http.StatusForbidden).Contains(`href="` + page + `"`)
		for tenant, to := range map[string]string{workspace: page, "//elsewhere.example": section} {
			stranger.Post(path, url.Values{"tenant": {tenant}}).As(path, tenant).
				LeadsTo("/login?return=" + url.QueryEscape(to) + "&unsent=1")
		}
	}
}

func TestNotFound_SignedInUserSeesNavigation(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	const path, navigation = "/settings/nothing", `<nav class="sections"`
	site.Browser().Get(path).As("stranger").Wants(http.StatusNotFound).Omits(navigation, ada.Email)
	site.SignedIn(ada).Get(path).As("user").Wants(http.StatusNotFound).Contains(navigation, ada.Email)
}

// Pages about an error have the choice of the workspace: the one of the request is chosen, and its links keep it.
func TestErrorPages_HaveWorkspaceSwitcher(t *testing.T) {
	site := own(t)
	ada, first := inTwo(site)
	browser := site.SignedIn(ada)
	browser.Get("/settings/nothing").Send(switching, browsertest.Fields{"tenant": first}).LeadsTo("/settings/user")
	own := site.Fixture.WorkspaceID.String()
	site.Fixture.Exec(`alter table account.oauth_clients rename to hidden`)
	browser.Get(applications+"?tenant="+own).Wants(http.StatusServiceUnavailable).Keeps(switching, "tenant", own).
		Contains(`<a href="/settings/connectors?tenant=` + own + `"`)
}

func TestRequestID_IsOnErrorPagesAlone(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	for path, status := range map[string]int{
		"/settings/user":                http.StatusOK,
		"/settings/developers":          http.StatusOK,
		"/settings/nothing":             http.StatusNotFound,
		"/settings/connectors?tenant=x": http.StatusForbidden,
	} {
		page := browser.Get(path).As(path).Wants(status)
		if id := page.Header.Get("X-Request-Id"); status == http.StatusOK {
			page.Omits(id)
		} else {
			page.Contains(id)
		}
	}
}

// While PostgreSQL does not respond, the error page keeps the navigation and can submit the same form again.
func TestUnavailable_KeepsFormInsideSettings(t *testing.T) {
	site := own(t)
	ada := site.Member(perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	browser.Headers.Set("Sec-Fetch-Site", "same-origin")
	form := with(browser.Get("/settings/user").Form(namePath), "name", "Ada Typed")
	const navigation = `<nav class="sections"`
	restore := site.CutPostgres()
	page := browser.Post(namePath, form)
	stranger := site.Browser().Get("/settings/user")
	restore()
	page.Wants(http.StatusServiceUnavailable, "Try again").Contains(navigation).Keeps(namePath, "name", "Ada Typed")
	page.Omits(ada.Email) // who was not read
	stranger.Omits(navigation)
	page.Send(namePath, nil).Follow().Says("Ada Typed")
}

// A page that answers a form has the path of the form, which has no GET. Its search must lead elsewhere.
func TestSearchForms_WorkOnPagesThatAnswerForms(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead, perm.AccountReadMembers, perm.AccountWriteMembers)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	site.Redeemed(app, ada.ID)
	for range 6 {
		site.Member(perm.ProgrammesRead)
	}
	browser := site.SignedIn(ada)
	in := "?tenant=" + site.Fixture.WorkspaceID.String()
	for name, page := range map[string]*browsertest.Page{
		"connections": savePolicy(browser, "", anyPlatform),
		"members":     invite(browser, "kim@example.org", reading),
	} {
		searches := page.All("form[role=search]", "action")
		if len(searches) != 1 || searches[0] == "" {
			t.Fatalf("%s: the searches are %q: %d %s", name, searches, page.Status, page.Text())
		}
		browser.Get(searches[0] + in + "&q=ada").As(name).Wants(http.StatusOK)
	}
}

const namePath = "/settings/user/name"

func TestUser_ChangesName(t *testing.T) {
	site := shared(t)
	ada := site.Stranger()
	browser := site.SignedIn(ada)
	form := with(browser.Get("/settings/user").Form(namePath), "name", "  Ada King ")
	browser.Post(namePath, form).Follow().Says("Your name was saved.", "Ada King")
	browser.Post(namePath, form) // changes nothing
	site.CountIs(1, "select count(*) from account.audit_events where "+`action = $2 and user_id = $1
		and detail::text not like '%King%'`, ada.ID, audit.UserRenamed)
	for _, name := range []string{"", " ", "a\u202eb", strings.Repeat("x", 101), "a\nb"} {
		page := browser.Post(namePath, with(form, "name", name)).As(name)
		page.Wants(http.StatusBadRequest, "The name was not saved.").Contains("<title>Error: ")
		if name != "a\nb" {
			page.Keeps(namePath, "name", name)
		}
	}
	browser.Post(namePath, url.Values{"name": {"Eve"}}).Wants(http.StatusForbidden)
	site.CountIs(1, `select count(*) from account.users where id = $1 and name = 'Ada King'`, ada.ID)
}

const deletePath = "/settings/user/delete"

func TestDeletion_EndsAccountAndSignsOut(t *testing.T) {
	site := shared(t)
	ada := memberManager(site)
	memberManager(site)
	site.Fixture.Token(ada.ID, perm.ProgrammesRead)
	browser, other := site.SignedIn(ada), site.SignedIn(ada)
	page := browser.Get(deletePath)
	page.Wants(http.StatusOK, "You leave the workspace Riverside Food Bank.", "1 personal access token",
		"Entries in audit logs", ada.Email)
	form := page.Form(deletePath)
	browser.Post(deletePath, with(form, "confirm", "-")).Wants(http.StatusBadRequest, "Tick this box")
	browser.Post(deletePath, with(form, "confirm", "yes", "key", "-")).Wants(http.StatusForbidden)
	site.CountIs(1, `select count(*) from account.users where id = $1 and deleted_at is null`, ada.ID)
	done := page.Send(deletePath, browsertest.Fields{"confirm": "yes"})
	done.Follow().Wants(http.StatusOK, "Your account was deleted.")
	done.LeadsTo("/login?account-deleted=1")
	for _, b := range []*browsertest.Browser{browser, other} {
		b.Get("/settings/user").Wants(http.StatusSeeOther)
	}
	for _, email := range []string{ada.Email, "x" + ada.Email} { // as an unknown user
		site.Browser().Get("/login").Send("/login",
			browsertest.Fields{"email": email, "password": browsertest.Password}).Wants(http.StatusBadRequest)
	}
	events(site, 1, ada, audit.UserDeleted)
}

func TestDeletion_NeedsAnotherManager(t *testing.T) {
	site := shared(t)
	ada := memberManager(site)
	browser := site.SignedIn(ada)
	browser.Get(deletePath).Wants(http.StatusOK, "You cannot delete it yet", "Riverside Food Bank", "Manage members")
	form := with(browser.Get("/settings/user").Form(namePath), "confirm", "yes")
	browser.Post(deletePath, form).Wants(http.StatusConflict, "Nothing was deleted.", "You cannot delete it yet")
	site.CountIs(1, `select count(*) from account.users where id = $1 and deleted_at is null`, ada.ID)
}
