package settings_test

import (
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/perm"
)

// summarised requires that the page reports the problem in its title and at its top with a link to the field, and that
// the field is associated with its note (WCAG 2.2, success criteria 3.3.1, 2.4.2, 1.3.1).
func summarised(t *testing.T, name string, page *browsertest.Page, field string) {
	t.Helper()
	byID := map[string]*html.Node{}
	var summary, at *html.Node
	for _, element := range []string{"div", "p", "input", "select", "textarea", "fieldset"} {
		for _, n := range page.Elements(element) {
			byID[browsertest.Attribute(n, "id")] = n
		}
	}
	if summary = byID["problem"]; summary == nil || browsertest.Attribute(summary, "role") != "alert" {
		t.Errorf("%s: there is no summary: %s", name, page.Text())
		return
	}
	for n := range summary.Descendants() {
		if to := browsertest.Attribute(n, "href"); n.Data == "a" {
			at = byID[strings.TrimPrefix(to, "#")]
		}
	}
	if at == nil || browsertest.Attribute(at, "id") != field {
		t.Errorf("%s: the summary does not lead to %s", name, field)
		return
	}
	if note := byID[browsertest.Attribute(at, "aria-describedby")]; note == nil ||
		browsertest.Attribute(note, "class") != "note" {
		t.Errorf("%s: the field is not associated with its note", name)
	}
	if !strings.Contains(page.Body, "<title>Error: Developers") {
		t.Errorf("%s: the title does not report the problem", name)
	}
}

func TestDevelopers_ProblemIsSummarisedAtTop(t *testing.T) {
	site := browsertest.Start(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	page := browser.Get(developers)
	if strings.Contains(page.Body, "Error: ") || strings.Contains(page.Body, `id="problem"`) {
		t.Error("there is a problem before anything was sent")
	}
	good := func() url.Values { return tokenForm(page, "export", "7", perm.ProgrammesRead) }
	token := func(field, value string) *browsertest.Page {
		form := good()
		form.Set(field, value)
		return browser.Post(tokens, form)
	}
	summarised(t, "token's name", token("name", ""), "token-name")
	summarised(t, "token's days", token("days", "8"), "token-days")
	summarised(t, "token's permissions", token("permissions", "sudo"), "token-permissions")
	app := func(changes url.Values) *browsertest.Page { return browser.Post(apps, appForm(page, changes)) }
	summarised(t, "application's name", app(url.Values{"name": {""}}), "app-name")
	summarised(t, "application's addresses", app(url.Values{"redirect_uris": {""}}), "app-redirects")
	summarised(t, "application's permissions", app(url.Values{"permissions": nil}), "app-permissions")
	summarised(t, "application's method", app(url.Values{"method": {"none"}}), "app-method")
	connector := url.Values{"kind": {"connector"}, "platform": {"claude"}, "resource": {"https://elsewhere.example"}}
	summarised(t, "connector's resource", app(connector), "app-resource")
	connector["platform"], connector["resource"] = []string{"x"}, []string{browsertest.Resource}
	summarised(t, "connector's platform", app(connector), "app-platform")
	site.Wait(session.Freshness)
	summarised(t, "password for a token", token("password", ""), "password-token")
	summarised(t, "password for an application", app(url.Values{"password": {"wrong"}}), "password-app")
}
