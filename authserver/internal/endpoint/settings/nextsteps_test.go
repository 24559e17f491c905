package settings_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// The page that shows a new application's client id also says what to do next.
func TestApplications_RegisteredOneShowsNextSteps(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	register := func(fields url.Values) *browsertest.Page {
		form := browser.Get(applications + "/new?tenant=" + site.Fixture.WorkspaceID.String()).Form(apps)
		for name, values := range fields {
			form[name] = values
		}
		return browser.Post(apps, form)
	}
	const callback = "https://app.example.org/callback?a=b"
	web := register(url.Values{
		"name":          {"Donor sync"},
		"kind":          {"confidential"},
		"method":        {"client_secret_json"},
		"redirect_uris": {callback},
		"permissions":   {"programmes:read:programmes"},
	})
	for _, want := range []string{
		"Donor sync was registered", "Exchange the code on your server", "/v1/account/oauth/token",
		"/oauth/authorize?client_id=", "redirect_uri=" + url.QueryEscape(callback), `/v1/docs#exchangeToken"`,
	} {
		if web.Status != http.StatusOK || !strings.Contains(strings.ReplaceAll(web.Body, "&#43;", "+"), want) {
			t.Errorf("%d, not on the page: %s", web.Status, want)
		}
	}
	connector := register(url.Values{
		"name":          {"Assistant"},
		"kind":          {"connector"},
		"platform":      {"claude"},
		"resource":      {browsertest.Issuer + "/mcp"},
		"redirect_uris": {"https://claude.ai/api/mcp/auth_callback"},
		"permissions":   {"programmes:read:programmes"},
	})
	if !connector.HasText("add a custom connector with the address "+browsertest.Issuer+"/mcp") ||
		strings.Contains(connector.Body, "/oauth/authorize?client_id=") {
		t.Errorf("%d %s", connector.Status, connector.Text())
	}
}
