package settings_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestApps_ListsEveryGrantAndEndsOne(t *testing.T) {
	site := shared(t)
	ada, eve := site.Member(perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	first, second := site.Redeemed(app, ada.ID), site.Redeemed(app, ada.ID)
	hers := site.Redeemed(app, eve.ID)
	browser := site.SignedIn(ada)
	page := browser.Get("/settings/apps")
	page.Says("Donor sync", "Riverside Food Bank", "See programmes", "Connected", "Last used", "Expires")
	form := page.Form("/settings/apps/disconnect")
	browser.Post("/settings/apps/disconnect", with(form, "id", hers.ID.String()))
	const active = `select count(*) from account.grants where id = $1 and state = 'active'`
	site.CountIs(1, active, hers.ID)
	form.Set("id", first.ID.String())
	browser.Post("/settings/apps/disconnect", form).Follow().Says("was disconnected", "You disconnected Donor sync.")
	site.CountIs(0, active, first.ID)
	site.CountIs(1, active, second.ID)
	site.Rows(1, "grants", `id = $1 and revoke_reason = 'disconnected_by_user'`, first.ID)
	browser.Post("/settings/apps/disconnect", form).Follow().Says("no longer connected")
}

func TestApps_ShowsReplayAndExpiryAsReasons(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	app := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	linked, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	g, over := site.Redeemed(app, ada.ID), site.Redeemed(linked, ada.ID)
	site.Must(site.Grants.Revoke(t.Context(), g, grant.Replayed, "client:"+app.ID.String()))
	site.Fixture.Exec(`update account.grants set ends_at = now() - interval '1 hour' where id = $1`, over.ID)
	browser := site.SignedIn(ada)
	const disconnected = "We disconnected Claude because an old access key was used again. It may have been copied."
	browser.Get("/settings/apps").
		Says(disconnected, "The access that you gave to Donor sync has expired.", "No connected apps")
	const event = "Claude was disconnected because an old access key was used again"
	browser.Get("/settings/security").Says(event, "It may have been copied.")
}

// The user's page, the connection log and the audit log show why a connection ended, and how to connect again.
func TestApps_ShowsProbableCauseOfReplay(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead, perm.AccountAPIAccess)
	app := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	g := site.Redeemed(app, ada.ID)
	reuse := &grant.Reuse{SuccessorUsed: true, Seconds: 7200, Network: "203.0.113.0/24", UserAgent: "<b>curl/8"}
	site.Must(site.Store.Revoke(t.Context(), g.Key(), grant.Replayed, "client:"+app.ID.String(), reuse))
	const words = "This looks like theft: the key that replaced it had already been used, 2 hours earlier."
	const origin = "203.0.113.0/24 (“<b>curl/8”)"
	browser, tenant := site.SignedIn(ada), "?tenant="+site.Fixture.WorkspaceID.String()
	for path, way := range map[string]string{
		"/settings/security":       "connect it again with the same choices",
		"/settings/audit" + tenant: "connect it again with the same choices",
		connectionLog + tenant:     "connects it again, with the same choices",
	} {
		browser.Get(path).As(path).Says(words, way, origin)
	}
	const first = "<strong>We disconnected Claude because an old access key was used again.</strong> This looks like"
	for _, path := range []string{"/settings/apps", "/settings/apps/app?id=" + g.ID.String()} {
		browser.Get(path).As(path).Contains(first).
			Says(words, "Details", "Network 203.0.113.0/24", "Program <b>curl/8").Lacks("came from")
	}
	site.SignedIn(developer(site, perm.AccountReadMembers)).
		Get(connectors+"/connection"+tenant+"&id="+g.ID.String()).Says(words, "Program <b>curl/8").
		Contains("<strong>Claude was disconnected because an old access key was used again.</strong> This looks like")
	browser.Get(connectors + tenant).Says("because an old access key was used again.").Omits("203.0.113.0")
}

const connect = "/settings/connect"

func TestConnect_ShowsAddressPermissionsAndLLMIntegration(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(site.Member(perm.ProgrammesRead))
	browser.Get("/settings/apps").Says("No connected apps").Contains(`href="` + connect + `"`)
	page := browser.Get(connect).Says("Claude", "ChatGPT", "VS Code", "Cursor")
	page.Contains(`value="`+mcp+`"`).Times(4, "<ol") // lists of steps
	browser.Get(connect).Wants(http.StatusOK, "AI assistants on", "See programmes").Lacks("Ask an administrator")
	site.Fixture.SetLLM(false)
	browser.Get(connect).Says("AI assistants off", "Before you can connect an assistant, an administrator must").
		Lacks("See programmes")
	administrator := site.Member(perm.ProgrammesRead, perm.AccountAPIAccess, perm.AccountWriteMembers)
	site.SignedIn(administrator).Get(connect).Says("Switch them on in Assistants").Lacks("Ask an administrator")
	site.Fixture.SetLLM(true)
	for state, want := range map[string]string{
		"enabled = false":                     "Programmes is switched off in this workspace",
		"enabled = true, provisioned = false": "Programmes is not set up yet in this workspace",
	} {
		site.Fixture.Exec(`update account.tenant_modules set `+state+` where module = 'programmes' and tenant_id = $1`,
			site.Fixture.WorkspaceID)
		browser.Get(connect).As(state).Says(want).Lacks("See programmes")
	}
	site.Fixture.Exec(`update account.tenant_modules set enabled = true, provisioned = true
		where module = 'programmes' and tenant_id = $1`, site.Fixture.WorkspaceID)
	const connectors = `href="/settings/connectors?tenant=`
	site.SignedIn(developer(site, perm.ProgrammesRead)).Get(connect).Contains("Change this in <a " + connectors)
	browser.Get(connect).Omits(connectors)
	site.SignedIn(site.Stranger()).Get(connect).Says("You are not a member of a workspace yet").
		Lacks("Copy the address")
}

func TestConnectedApps_DisconnectAllEndsApprovalsOfOneApplication(t *testing.T) {
	site := shared(t)
	ada, eve := site.Member(perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	app := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	other := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	for _, who := range []browsertest.Person{ada, ada, eve} {
		site.Redeemed(app, who.ID)
	}
	kept := site.Redeemed(other, ada.ID)
	browser := site.SignedIn(ada)
	const all = "/settings/apps/disconnect-all"
	page := browser.Get("/settings/apps").Times(1, `action="`+all+`"`).Times(2, `<h3 class="name">`)
	form := page.Keeps(all, "id", app.ID.String()).Form(all)
	browser.Post(all, with(form, "id", kept.ID.String())) // which is not an application
	const active = `select count(*) from account.grants where state = 'active' and user_id = $1`
	site.CountIs(3, active, ada.ID)
	browser.Post(all, form).Follow().Says("was disconnected from all workspaces", "Connect again")
	site.CountIs(1, active, ada.ID)
	site.CountIs(1, active, eve.ID)
	browser.Post(all, form).Follow().Says("no longer connected")
}

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
		"&kind=approved":                     "grant",
		"&kind=stopped&until=2026-03-01":     "one",
		"&kind=x":                            "grant one two",
		"&since=2026-03-02&until=2026-03-02": "grant",
		"&until=2026-03-01":                  "one",
		"&since=2026-03-03":                  "two",
		"&request=req-stop&person=eve":       "",
		"&person=%25":                        "",
	} {
		for _, path := range []string{connectionLog, connectionLog + ".csv", connectionLog + ".jsonl"} {
			finds(browser, path+"?tenant="+in.String()+query, marks, want).Omits("reason elsewhere", "Max Stone")
		}
	}
	exported := browser.Get(connectionLog + ".csv?tenant=" + in.String())
	if rows := rowsOf(t, exported); len(rows) != 4 || rows[1][1] != "'=Finder" || rows[2][3] != "Eve Moss" {
		t.Errorf("%v", rows)
	}
	site.CountIs(37, `select count(*) from account.audit_events where action = $1 and tenant_id = $2`,
		audit.ConnectionsExported, in)
}

// finds requires that a search shows the marks whose names are wanted, and no others.
func finds(browser *browsertest.Browser, path string, marks map[string]string, want string) *browsertest.Page {
	page := browser.Get(path).As(path).Wants(http.StatusOK)
	for name, mark := range marks {
		if strings.Contains(want, name) {
			page.Contains(mark)
		} else {
			page.Omits(mark)
		}
	}
	return page
}

// A connection is ended from the log, which shows it as ended at once.
func TestConnectionLog_DisconnectsAndShowsTheEnd(t *testing.T) {
	site := shared(t)
	ada, eve := developer(site, perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	site.Redeemed(site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead), eve.ID)
	page := site.SignedIn(ada).Get(connectionLog)
	page.Wants(http.StatusOK, "Connected", "Disconnect")
	ended := page.Send(disconnectPath, browsertest.Fields{"id": page.Attribute("button[name=id]", "value")})
	site.Contains("the form leads to", ended.Location(), connectionLog+"?")
	shown := ended.Follow()
	shown.Wants(http.StatusOK, "was disconnected from the account of", "Ended")
	page.Times(1, disconnectButton)
	shown.Times(0, disconnectButton)
}

func TestConnectionLog_IsPagedAndLight(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	app := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	connections(site, app, ada, 60)
	site.Fixture.Exec(`insert into account.audit_events (id, tenant_id, actor, action, subject, request_id)
		select gen_random_uuid(), $1, 'system', 'test.step', 'grant:' || id, 'request of ' || id
		from account.grants`, site.Fixture.WorkspaceID)
	hasPages(t, site.SignedIn(ada), connectionLog, "a[href*='&before=']", "input[id^=request-]", "id")
}

// hasPages requires 60 distinct values of an attribute on 3 light pages, of which next leads to the following one.
func hasPages(t *testing.T, browser *browsertest.Browser, path, next, selector, attribute string) {
	t.Helper()
	seen, pages := map[string]bool{}, 0
	for ; path != ""; pages++ {
		page := browser.Get(path)
		isLight(t, path, page)
		for _, value := range page.All(selector, attribute) {
			seen[value] = true
		}
		path = page.Attribute(next, "href")
	}
	if len(seen) != 60 || pages != 3 {
		t.Errorf("%d rows on %d pages, want 60 on 3", len(seen), pages)
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
	site, _, browser := inSettings(t, perm.ProgrammesRead)
	app := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	log := func() *browsertest.Page { return browser.Get(connectionLog) }
	browser.Get(connectors).Says("No attempts yet")
	for _, c := range []struct {
		what  string
		page  *browsertest.Page
		words []string
	}{
		{
			"wrong address", openConsent(site.Browser(), app, "redirect_uri", "https://evil.example/cb"),
			[]string{"Refused", "Unknown person", "does not accept", "an address that is not registered"},
		},
		{
			"no challenge", openConsent(browser, app, "code_challenge", ""),
			[]string{"Refused", "Ada Okafor", "does not accept", "code_challenge is required"},
		},
		{
			"nothing held", openConsent(site.SignedIn(site.Member(perm.EngageReadForms)), app),
			[]string{"Refused", "The person does not have what it asked for: See programmes"},
		},
		{
			"not a member", openConsent(site.SignedIn(site.Stranger()), app),
			[]string{"Refused", "not a member of the workspace"},
		},
		{"shown", openConsent(browser, app), []string{"Waiting", "The person has not answered the approval page yet"}},
	} {
		log().As(c.what).Says(append(c.words, "Requested : done", "Approved : not reached")...).
			Contains(c.page.Header.Get("X-Request-Id"))
	}
	const answer = "/oauth/authorize"
	openConsent(browser, app).Send(answer, browsertest.Fields{"decision": "deny"}).Wants(http.StatusSeeOther)
	log().Says("Denied", "The person did not approve it.").Lacks("Waiting")
	approved := openConsent(browser, app).Send(answer, browsertest.Fields{"decision": "approve"})
	page := browser.Get(connectionLog + "?client=" + app.ID.String())
	page.Says("Approved : done", "Sign-in finished : not reached", "one minute to finish the sign-in",
		"Connection attempts of "+app.Name)
	page.Contains(approved.Header.Get("X-Request-Id")).Omits("alm_")
	site.Rows(0, "connection_stops s", `s::text like '%alm\_%'`)
	latest := browser.Get(connectors)
	latest.Wants(http.StatusOK, "Waiting", "one minute to finish the sign-in", "Denied", "Open the log")
	latest.Omits("code_challenge")
}

// The list of all connections has less than 60 KB, and the page that sums it up has less than the half.
func TestConnectors_AreLight(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	for range 5 {
		connections(site, site.Fixture.Connector(browsertest.Resource, perm.ForConnectors()...), ada, 8)
	}
	site.Fixture.Exec(`update account.oauth_clients set name = left(id || ' of the Riverside Food Bank', 60)
		where tenant_id = $1`, site.Fixture.WorkspaceID)
	browser := site.SignedIn(ada)
	isLight(t, "all", browser.Get(connectors+"?all=1").Times(25, disconnectButton))
	page := browser.Get(connectors).Times(5, disconnectButton)
	if len(page.Body) > 30_000 {
		t.Errorf("%d bytes", len(page.Body))
	}
}

func TestConnectionLog_IsLimitedToItsWorkspace(t *testing.T) {
	site := shared(t)
	app := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	openConsent(site.Browser(), app, "redirect_uri", "https://evil.example/cb")
	browser := site.SignedIn(developerElsewhere(site))
	for path, empty := range map[string]string{
		connectors:    "No attempts yet",
		connectionLog: "No attempts yet",
		connectionLog + "?client=" + app.ID.String(): "No attempt matches",
	} {
		browser.Get(path).As(path).Wants(http.StatusOK, empty).Lacks("Claude 127", "evil")
	}
	linked, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	browser.Get("/oauth/authorize?client_id=" + linked.ID.String() + "&state=s&redirect_uri=https://evil.example/cb")
	site.Rows(0, "connection_stops", `client_id = $1`, linked.ID)
}
