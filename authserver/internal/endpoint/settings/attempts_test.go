package settings_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// openConsent opens the consent page of a connector as its platform does.
func openConsent(browser *browsertest.Browser, c client.Client, changes ...string) *browsertest.Page {
	query := url.Values{
		"client_id":             {c.ID.String()},
		"redirect_uri":          {c.Redirects[0]},
		"state":                 {"s"},
		"response_type":         {"code"},
		"resource":              {c.Resource},
		"code_challenge":        {"E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"},
		"code_challenge_method": {"S256"},
	}
	for i := 0; i+1 < len(changes); i += 2 {
		query.Set(changes[i], changes[i+1])
	}
	return browser.Get("/oauth/authorize?" + query.Encode())
}

func TestConnectionLog_ShowsStepsAndReasonOfEachAttempt(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	app := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	log := func() *browsertest.Page { return browser.Get(connectionLog) }
	browser.Get(connectors).Says("No connection attempts yet.")
	for _, c := range []struct {
		what  string
		page  *browsertest.Page
		words []string
	}{
		{
			"wrong address", openConsent(site.Browser(), app, "redirect_uri", "https://evil.example/cb"),
			[]string{"Refused", "Unknown user", "an address that is not registered"},
		},
		{
			"no challenge", openConsent(browser, app, "code_challenge", ""),
			[]string{"Refused", "Ada Okafor", "code_challenge is required"},
		},
		{
			"nothing held", openConsent(site.SignedIn(site.Member(perm.EngageReadForms)), app),
			[]string{"Refused", "does not have the requested permissions: See programmes"},
		},
		{
			"not a member", openConsent(site.SignedIn(site.Stranger()), app),
			[]string{"Refused", "not a member of the workspace"},
		},
		{"shown", openConsent(browser, app), []string{"Waiting", "The user has not answered yet"}},
	} {
		log().As(c.what).Says(append(c.words, "Requested : done", "Approved : not reached")...).
			Contains(c.page.Header.Get("X-Request-Id"))
	}
	const answer = "/oauth/authorize"
	openConsent(browser, app).Send(answer, browsertest.Fields{"decision": "deny"}).Wants(http.StatusSeeOther)
	log().Says("Denied", "did not approve").Lacks("Waiting")
	approved := openConsent(browser, app).Send(answer, browsertest.Fields{"decision": "approve"})
	page := browser.Get(connectionLog + "?client=" + app.ID.String())
	page.Says("Approved : done", "Code exchanged : not reached", "one minute to exchange the code",
		"Connection attempts of "+app.Name)
	page.Contains(approved.Header.Get("X-Request-Id")).Omits("alm_")
	site.Rows(0, "connection_stops s", `s::text like '%alm\_%'`)
	latest := browser.Get(connectors)
	latest.Wants(http.StatusOK, "Waiting", "one minute to exchange the code", "Show attempts of "+app.Name)
	latest.Lacks("Denied")
}

// A page shows 25 connectors, and has less than 60 KB together with 25 connections.
func TestConnectors_ArePagedAndLight(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	for range 60 {
		app := site.Fixture.Connector(browsertest.Resource, perm.ForConnectors()...)
		site.Fixture.Exec(`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource,
				state, created_at, ends_at, generation)
			select gen_random_uuid(), 'connector', $1, $2, $3, $4, 'r', 'active', now() - n * interval '1 minute',
				now() + interval '9 days', 1 from generate_series(1, 8) n`,
			app.ID, ada.ID, site.Fixture.WorkspaceID, perm.ForConnectors().Strings())
	}
	site.Fixture.Exec(`update account.oauth_clients set name = left(id || ' of the Riverside Food Bank', 60)
		where tenant_id = $1`, site.Fixture.WorkspaceID)
	browser := site.SignedIn(ada)
	seen, pages := map[string]bool{}, 0
	for path := connectors; path != ""; pages++ {
		page := browser.Get(path)
		t.Logf("%s: %d bytes", path, len(page.Body))
		if len(page.Body) > 60<<10 {
			t.Errorf("%s: %d bytes", path, len(page.Body))
		}
		path = page.Attribute("a[rel=next]", "href")
		for _, href := range page.Links("") {
			if strings.Contains(href, "&client=") {
				seen[href] = true
			}
		}
	}
	if len(seen) != 60 || pages != 3 {
		t.Errorf("%d connectors on %d pages", len(seen), pages)
	}
	browser.Get(connectors+"?page=9").Wants(http.StatusOK, "No more connectors", "Previous page")
}

func TestConnectionLog_IsLimitedToItsWorkspace(t *testing.T) {
	site := shared(t)
	app := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	openConsent(site.Browser(), app, "redirect_uri", "https://evil.example/cb")
	elsewhere := site.Fixture.Workspace("Hillside Youth Club")
	eve := site.Stranger()
	site.Fixture.Join(elsewhere, eve.ID, perm.AccountAPIAccess)
	browser := site.SignedIn(eve)
	for path, empty := range map[string]string{
		connectors:    "No connectors",
		connectionLog: "No attempts yet",
		connectionLog + "?client=" + app.ID.String(): "No attempt matches",
	} {
		browser.Get(path).As(path).Wants(http.StatusOK, empty).Lacks("Claude 127", "evil")
	}
	linked, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	browser.Get("/oauth/authorize?client_id=" + linked.ID.String() + "&state=s&redirect_uri=https://evil.example/cb")
	site.Rows(0, "connection_stops", `client_id = $1`, linked.ID)
}
