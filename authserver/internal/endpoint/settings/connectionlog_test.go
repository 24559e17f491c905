package settings_test

import (
	"encoding/csv"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
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
	content, marked := strings.CutPrefix(exported.Body, "\ufeff")
	if !marked {
		t.Errorf("no byte order mark: %.40q", content)
	}
	rows, err := csv.NewReader(strings.NewReader(content)).ReadAll()
	if err != nil || len(rows) != 4 || rows[1][1] != "'=Finder" || rows[2][3] != "Eve Moss" {
		t.Errorf("%v %v", rows, err)
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
	site.Fixture.Exec(`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource,
			state, created_at, ends_at, generation)
		select gen_random_uuid(), 'connector', $1, $2, $3, '{programmes:read:programmes}', 'r', 'active',
			date_trunc('second', now()) - (n / 3) * interval '1 minute', now() + interval '9 days', 1
		from generate_series(1, 60) n`, app.ID, ada.ID, site.Fixture.WorkspaceID)
	site.Fixture.Exec(`insert into account.audit_events (id, tenant_id, actor, action, subject, request_id)
		select gen_random_uuid(), $1, 'system', 'test.step', 'grant:' || id, 'request of ' || id
		from account.grants`, site.Fixture.WorkspaceID)
	seen, pages := map[string]bool{}, 0
	browser := site.SignedIn(ada)
	for path := connectionLog; path != ""; pages++ {
		page := browser.Get(path)
		if len(page.Body) > 60<<10 {
			t.Errorf("%s: %d bytes", path, len(page.Body))
		}
		for _, field := range page.Elements("input") {
			if id := browsertest.Attribute(field, "id"); strings.HasPrefix(id, "request-") {
				seen[id] = true
			}
		}
		path = page.Attribute("a[href*='&before=']", "href")
	}
	if len(seen) != 60 || pages != 3 {
		t.Errorf("%d attempts on %d pages", len(seen), pages)
	}
}
