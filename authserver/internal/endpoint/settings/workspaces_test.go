package settings_test

import (
	"fmt"
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

// at checks that the navigation of a page is that of a workspace.
func at(page *browsertest.Page, workspace string) *browsertest.Page {
	return page.Contains(`<a href="/settings/audit?tenant=` + workspace + `"`)
}

// ofWorkspaces are pages of a workspace with the section to which they belong.
func ofWorkspaces() map[string]string {
	return map[string]string{
		developers: developers, newToken: developers, applications: applications, newApp: applications, hooks: hooks,
		connectors: connectors, connectionLog: connectionLog, "/settings/audit": "/settings/audit",
	}
}

// Each page of a workspace has links to the same section of the user's other workspaces. After a form is sent, the
// page's URL is the form's, which a GET does not serve.
func TestNavigation_LinksToOtherWorkspaces(t *testing.T) {
	site := shared(t)
	ada, first := inTwo(site)
	own := site.Fixture.WorkspaceID.String()
	browser := site.SignedIn(ada)
	other := func(page *browsertest.Page, section string) {
		page.Contains(`<a href="` + section + "?tenant=" + first + `">Abbey Lane Larder</a>`)
	}
	browser.Get(developers + "?tenant=" + own)
	other(savePolicy(browser, "31", anyPlatform, perm.ProgrammesRead), connectors)
	for page, section := range ofWorkspaces() {
		other(at(browser.Get(page+"?tenant="+own).As(page), own), section)
		browser.Get(section + "?tenant=" + first).As(page).Wants(http.StatusOK).
			Contains(`<a href="` + section + "?tenant=" + own + `">Riverside Food Bank</a>`)
	}
	browser.Get(developers + "?tenant=" + own)
	other(browser.Get("/settings/user"), connectors) // the first section that ada may open there
	for n := range 5 {                               // one to five others are one click away
		browser.Get("/settings/user").Omits(`<details class="places">`)
		site.Fixture.Join(site.Fixture.Workspace(fmt.Sprint("Workspace ", n)), ada.ID, perm.AccountAPIAccess)
	}
	browser.Get("/settings/user").Contains(`<details class="places">`) // six others
}

// A workspace that was visited stays chosen (contract, section 7), for every page and for a form without a workspace.
func TestWorkspace_StaysChosenOnceVisited(t *testing.T) {
	site := shared(t)
	ada, first := inTwo(site)
	browser := site.SignedIn(ada)
	for _, workspace := range []string{first, site.Fixture.WorkspaceID.String(), first} {
		browser.Get(applications + "?tenant=" + workspace).Wants(http.StatusOK)
		for _, page := range []string{developers, newToken, hooks, connectors, "/settings/user", "/settings/apps"} {
			at(browser.Get(page).As(page), workspace)
		}
		form := browser.Get(newApp).Form(apps)
		form.Del("tenant")
		at(browser.Post(apps, form), workspace)
	}
	elsewhere := site.Fixture.Workspace("Zion Hall").String()
	browser.Get(members + "?tenant=" + elsewhere).Wants(http.StatusForbidden)
	at(browser.Get(developers), first)
}

// The navigation has the pages that the user may open in the workspace, and no workspace in which there are none.
// Without a visit, it has the first workspace with pages.
func TestNavigation_HasPagesThatUserMayOpen(t *testing.T) {
	site := shared(t)
	ada, other := developer(site, perm.ProgrammesRead), site.Fixture.Workspace("Abbey Lane Larder")
	site.Fixture.Join(other, ada.ID, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	own := site.Fixture.WorkspaceID.String()
	for path := range ofWorkspaces() {
		at(browser.Get(path).As(path).Wants(http.StatusOK), own).Omits(`"/settings/members`, ">Abbey Lane Larder<")
		browser.Get(path+"?tenant="+other.String()).As(path).
			Wants(http.StatusForbidden, "In Abbey Lane Larder, you do not have the permission").
			Contains(`?tenant=` + own + `">Riverside Food Bank</a>`).
			Omits("?tenant=" + other.String())
	}
	at(browser.Get("/settings/user"), own)
	site.SignedIn(site.Member(perm.ProgrammesRead)).Get("/settings/user").
		Contains(`<a href="/settings/security"`).Omits(`id="group-workspace"`)
}

// Names of organisations are shown only where the names of workspaces are equal.
func TestNavigation_NamesOrganisationsOfEqualNames(t *testing.T) {
	site := shared(t)
	ada, _ := inTwo(site)
	browser := site.SignedIn(ada)
	browser.Get("/settings/user").Omits(">Abbey Lane Larder (")
	site.Fixture.Join(site.Fixture.Workspace("Abbey Lane Larder"), ada.ID, perm.AccountAPIAccess)
	browser.Get("/settings/user").Times(2, ">Abbey Lane Larder (") // with the organisation's name
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

// Pages about an error have the navigation of the workspace of the request.
func TestErrorPages_HaveWorkspace(t *testing.T) {
	site := own(t)
	ada, first := inTwo(site)
	browser := site.SignedIn(ada)
	own := site.Fixture.WorkspaceID.String()
	at(browser.Get("/settings/nothing").Wants(http.StatusNotFound), first)
	site.Fixture.Exec(`alter table account.oauth_clients rename to hidden`)
	at(browser.Get(applications+"?tenant="+own).Wants(http.StatusServiceUnavailable), own)
}

func TestRequestID_IsOnErrorPagesAlone(t *testing.T) {
	_, _, browser := inSettings(t, perm.ProgrammesRead)
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
	for range 6 {
		site.Redeemed(app, ada.ID)
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
