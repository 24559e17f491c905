package settings_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

const connectionLog = "/settings/connectors/log"

func TestConnectionLog_SearchSelectsAttemptsOfPageAndExports(t *testing.T) {
	site := shared(t)
	in := site.Fixture.WorkspaceID
	ada, eve := developer(site, perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	left, other := site.Stranger(), site.Fixture.Workspace("Elsewhere")
	sorter := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	finder := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	site.Fixture.Exec(`update account.users set name = 'Eve Moss' where id = $1`, eve.ID)
	site.Fixture.Exec(`update account.users set name = 'Max Stone' where id = $1`, left.ID)
	site.Fixture.Exec(`update account.oauth_clients set name = 'Sorter' where id = $1`, sorter.ID)
	site.Fixture.Exec(`update account.oauth_clients set name = '=Finder' where id = $1`, finder.ID)
	live := uuid.New()
	site.Fixture.Exec(`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource,
		state, created_at, ends_at, generation) values ($1, 'connector', $2, $3, $4, '{programmes:read:programmes}', $5,
		'active', '2026-03-02T23:59:59Z', '2099-01-01', 1)`, live, sorter.ID, eve.ID, in, browsertest.Resource)
	site.Fixture.Exec(`insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, request_id)
		values (gen_random_uuid(), $1, $2, 'system', 'test.step', $3, 'req-grant')`, in, eve.ID, "grant:"+live.String())
	const stop = `insert into account.connection_stops (id, tenant_id, client_id, user_id, stray, outcome, reason,
		request_id, at) values (gen_random_uuid(), $1, $2, $3, false, 'refused', $4, $5, $6::timestamptz)`
	site.Fixture.Exec(stop, in, finder.ID, ada.ID, "reason one", "req-stop", "2026-03-01T12:00:00Z")
	site.Fixture.Exec(stop, in, finder.ID, left.ID, "reason two", "req-left", "2026-03-03T00:00:00Z")
	site.Fixture.Exec(stop, other, finder.ID, ada.ID, "reason elsewhere", "req-stop", "2026-03-01T12:00:00Z")
	marks := map[string]string{"grant": "req-grant", "one": "reason one", "two": "reason two"}
	browser := site.SignedIn(ada)
	for query, want := range map[string]string{
		"":                                   "grant one two",
		"&request=+req-stop":                 "one",
		"&request=req-grant":                 "grant",
		"&person=eve+m":                      "grant",
		"&person=" + ada.Email:               "one",
		"&person=max":                        "", // the log does not name users who are not members
		"&application=SORT":                  "grant",
		"&application=finder":                "one two",
		"&client=" + sorter.ID.String():      "grant",
		"&client=x":                          "grant one two",
		"&since=2026-03-02&until=2026-03-02": "grant",
		"&until=2026-03-01":                  "one",
		"&since=2026-03-03":                  "two",
		"&request=req-stop&person=eve":       "",
		"&person=%25":                        "",
	} {
		for _, path := range []string{connectionLog, connectionLog + ".csv", connectionLog + ".jsonl"} {
			page := browser.Get(path + "?tenant=" + in.String() + query)
			for name, mark := range marks {
				if got := strings.Contains(page.Body, mark); page.Status != http.StatusOK ||
					got != strings.Contains(want, name) {
					t.Errorf("%s%s: %d, %s is there: %v", path, query, page.Status, name, got)
				}
			}
			page.As(path, query).Omits("reason elsewhere", "Max Stone")
		}
	}
	exported := browser.Get(connectionLog + ".csv?tenant=" + in.String())
	if rows := rowsOf(t, exported); len(rows) != 4 || rows[1][1] != "'=Finder" || rows[2][3] != "Eve Moss" {
		t.Errorf("%v", rows)
	}
	site.CountIs(31, `select count(*) from account.audit_events where action = $1 and tenant_id = $2`,
		audit.ConnectionsExported, in)
}

// A connection is ended from the log, which shows it as ended at once.
func TestConnectionLog_DisconnectsAndShowsTheEnd(t *testing.T) {
	site := shared(t)
	ada, eve := developer(site, perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	site.Redeemed(site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead), eve.ID)
	page := site.SignedIn(ada).Get(connectionLog)
	page.Wants(http.StatusOK, "Connected", "Disconnect")
	ended := page.Send(connectors+"/disconnect", nil)
	if at := ended.Location(); !strings.HasPrefix(at, connectionLog+"?") {
		t.Errorf("the form leads to %s", at)
	}
	shown := ended.Follow()
	shown.Wants(http.StatusOK, "was disconnected from the account of", "Ended")
	if len(shown.Elements("form")) != len(page.Elements("form"))-1 {
		t.Error("an ended connection can be disconnected")
	}
}

func TestConnectionLog_IsPagedAndLight(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	app := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	connections(site, app, ada, 60)
	site.Fixture.Exec(`insert into account.audit_events (id, tenant_id, actor, action, subject, request_id)
		select gen_random_uuid(), $1, 'system', 'test.step', 'grant:' || id, 'request of ' || id
		from account.grants`, site.Fixture.WorkspaceID)
	seen, pages := map[string]bool{}, 0
	browser := site.SignedIn(ada)
	for path := connectionLog; path != ""; pages++ {
		page := browser.Get(path)
		isLight(t, path, page)
		for _, id := range page.All("input[id^=request-]", "id") {
			seen[id] = true
		}
		path = page.Attribute("a[href*='&before=']", "href")
	}
	if len(seen) != 60 || pages != 3 {
		t.Errorf("%d attempts on %d pages", len(seen), pages)
	}
}

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
		connections(site, site.Fixture.Connector(browsertest.Resource, perm.ForConnectors()...), ada, 8)
	}
	site.Fixture.Exec(`update account.oauth_clients set name = left(id || ' of the Riverside Food Bank', 60)
		where tenant_id = $1`, site.Fixture.WorkspaceID)
	browser := site.SignedIn(ada)
	seen, pages := map[string]bool{}, 0
	for path := connectors; path != ""; pages++ {
		page := browser.Get(path)
		isLight(t, path, page)
		path = page.Attribute("a[rel=next]", "href")
		for _, href := range page.All("a[href*='&client=']", "href") {
			seen[href] = true
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
	browser := site.SignedIn(developerElsewhere(site))
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
