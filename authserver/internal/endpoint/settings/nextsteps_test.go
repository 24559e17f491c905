package settings_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

// The page that shows a new application's client id also says what to do next.
func TestApplications_RegisteredOneShowsNextSteps(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	const callback = "https://app.example.org/callback?a=b"
	web := register(browser, url.Values{"redirect_uris": {callback}})
	for _, want := range []string{
		"Donor sync was registered", "Exchange the code on your server", "/v1/account/oauth/token",
		"/oauth/authorize?client_id=", "redirect_uri=" + url.QueryEscape(callback), `/v1/docs#exchangeToken"`,
	} {
		if web.Status != http.StatusOK || !strings.Contains(strings.ReplaceAll(web.Body, "&#43;", "+"), want) {
			t.Errorf("%d, not on the page: %s", web.Status, want)
		}
	}
	register(browser, url.Values{"kind": {"connector"}, "platform": {"claude"}, "resource": {mcp}}).
		Says("add a custom connector with the address " + mcp).Omits("/oauth/authorize?client_id=")
}
