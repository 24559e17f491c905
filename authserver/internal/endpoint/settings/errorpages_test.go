package settings_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestNotFound_SignedInUserSeesNavigation(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	const navigation = `<nav class="sections"`
	for name, b := range map[string]*browsertest.Browser{"stranger": site.Browser(), "user": site.SignedIn(ada)} {
		page := b.Get("/settings/nothing")
		if page.Status != http.StatusNotFound || strings.Contains(page.Body, navigation) != (name == "user") ||
			strings.Contains(page.Body, ada.Email) != (name == "user") {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
		}
	}
}

// Pages about an error have the choice of the workspace: the one of the request is chosen, and its links keep it.
func TestErrorPages_HaveWorkspaceSwitcher(t *testing.T) {
	site := own(t)
	ada, first := inTwo(site)
	browser := site.SignedIn(ada)
	missing := browser.Get("/settings/nothing")
	missing.Send(switching, browsertest.Fields{"tenant": first}).LeadsTo("/settings/user")
	own := site.Fixture.WorkspaceID.String()
	site.Fixture.Exec(`alter table account.oauth_clients rename to hidden`)
	failed := browser.Get(applications + "?tenant=" + own)
	if failed.Status != http.StatusServiceUnavailable || failed.Form(switching).Get("tenant") != own ||
		!strings.Contains(failed.Body, `<a href="/settings/connectors?tenant=`+own+`"`) {
		t.Errorf("503: %d %s", failed.Status, failed.Body)
	}
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
		page := browser.Get(path)
		if id := page.Header.Get("X-Request-Id"); page.Status != status ||
			strings.Contains(page.Body, id) != (status != http.StatusOK) {
			t.Errorf("%s: %d %s", path, page.Status, page.Text())
		}
	}
}

// While PostgreSQL does not respond, the error page keeps the navigation and can submit the same form again.
func TestUnavailable_KeepsFormInsideSettings(t *testing.T) {
	site := own(t)
	ada := site.Member(perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	browser.Headers.Set("Sec-Fetch-Site", "same-origin")
	form := browser.Get("/settings/user").Form("/settings/user/name")
	form.Set("name", "Ada Typed")
	const navigation = `<nav class="sections"`
	restore := site.CutPostgres()
	page := browser.Post("/settings/user/name", form)
	stranger := site.Browser().Get("/settings/user")
	restore()
	if page.Status != http.StatusServiceUnavailable || !strings.Contains(page.Body, navigation) ||
		!page.HasText("Try again") || page.Form("/settings/user/name").Get("name") != "Ada Typed" {
		t.Errorf("%d %s", page.Status, page.Body)
	}
	if strings.Contains(page.Body, ada.Email) || strings.Contains(stranger.Body, navigation) {
		t.Error("the page names a user who was not read, or a browser that is signed out sees the navigation")
	}
	if again := page.Send("/settings/user/name", nil); again.Status != http.StatusSeeOther ||
		!again.Follow().HasText("Ada Typed") {
		t.Errorf("sent again: %d %s", again.Status, again.Text())
	}
}
