package settings_test

import (
	"encoding/csv"
	"net/http"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestAudit_SearchSelectsEventsOfPageAndExports(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	eve := site.Member(perm.ProgrammesRead)
	app := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	site.Fixture.Exec(`update account.users set name = 'Eve Moss' where id = $1`, eve.ID)
	site.Fixture.Exec(`update account.oauth_clients set name = 'Sorter' where id = $1`, app.ID)
	const insert = `insert into account.audit_events (id, at, tenant_id, user_id, actor, action, subject, request_id)
		values (gen_random_uuid(), $2::timestamptz, $1, $3, 'admin', $4, $5, $6)`
	in := site.Fixture.WorkspaceID
	site.Fixture.Exec(insert, in, "2026-03-01T23:59:59Z", ada.ID, "test.request", "x", "req-1")
	site.Fixture.Exec(insert, in, "2026-03-02T23:59:59Z", eve.ID, "test.person", "x", "req-2")
	site.Fixture.Exec(insert, in, "2026-03-03T00:00:00Z", ada.ID, "test.application", "client:"+app.ID.String(), "")
	browser := site.SignedIn(ada)
	for query, want := range map[string]string{
		"&request=+req-1":                    "test.request",
		"&person=eve+m":                      "test.person",
		"&person=" + eve.Email:               "test.person",
		"&application=SORT":                  "test.application",
		"&client=" + app.ID.String():         "test.application",
		"&client=" + in.String():             "",
		"&since=2026-03-02&until=2026-03-02": "test.person",
		"&until=2026-03-01":                  "test.request",
		"&since=2026-03-03&until=2026-03-03": "test.application",
		"&request=req-1&person=eve":          "",
		"&person=%25":                        "",
	} {
		for _, path := range []string{"/settings/audit", "/settings/audit.csv", "/settings/audit.jsonl"} {
			page := browser.Get(path + "?tenant=" + in.String() + query)
			for _, action := range []string{"test.request", "test.person", "test.application"} {
				if got := strings.Contains(page.Body, action); page.Status != http.StatusOK || got != (action == want) {
					t.Errorf("%s%s: %d, %s is there: %v", path, query, page.Status, action, got)
				}
			}
		}
	}
	page := browser.Get("/settings/audit?tenant=" + in.String() + "&person=eve+m")
	to := `href="/settings/audit.csv?tenant=` + in.String() + `&amp;person=eve&#43;m"`
	page.Contains(to)
}

func TestAudit_CSVMarksFormulas(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	for _, text := range []string{`=HYPERLINK("https://x")`, "+1", "-1", "@SUM(A1)", "\t=1", "a\n=1,\"b\""} {
		site.Fixture.Exec(`insert into account.audit_events (id, tenant_id, actor, action, subject, request_id)
			values (gen_random_uuid(), $1, $2, $2, $2, $2)`, site.Fixture.WorkspaceID, text)
	}
	page := browser.Get("/settings/audit.csv?tenant=" + site.Fixture.WorkspaceID.String())
	if !strings.HasPrefix(page.Header.Get("Content-Type"), "text/csv") ||
		!strings.HasPrefix(page.Header.Get("Content-Disposition"), "attachment") ||
		page.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%v", page.Header)
	}
	content, marked := strings.CutPrefix(page.Body, "\ufeff")
	if !marked {
		t.Errorf("no byte order mark: %.40q", content)
	}
	rows, err := csv.NewReader(strings.NewReader(content)).ReadAll()
	if err != nil || len(rows) < 7 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	for _, row := range rows[1:] {
		for _, cell := range row {
			if strings.IndexAny(cell, "=+-@\t") == 0 {
				t.Errorf("a cell begins with a formula: %q", cell)
			}
		}
	}
}

// Both logs refuse days in the wrong order, with an error at the field.
func TestLogs_DaysInWrongOrderAreRefused(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(developer(site))
	const want = "“From” must not be later than “To”"
	for _, path := range []string{"/settings/audit", "/settings/connectors/log"} {
		path += "?tenant=" + site.Fixture.WorkspaceID.String()
		browser.Get(path+"&since=2026-03-02&until=2026-03-01").As(path).Wants(http.StatusBadRequest, want)
		for _, days := range []string{"&since=2026-03-01&until=2026-03-01", "&since=2026-03-02", "&until=2026-03-01"} {
			browser.Get(path + days).As(path).Wants(http.StatusOK).Lacks(want)
		}
	}
}
