package settings_test

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// What one actor did by one request is one line, which says what changed, counts what ended because of it, and
// unfolds. The exports have a row for each event, with the same request.
func TestAudit_ActIsOneLine(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	const insert = `insert into account.audit_events (id, at, tenant_id, user_id, actor, action, subject, detail,
			request_id)
		select gen_random_uuid(), now() - $1::interval - n * interval '1 millisecond', $2, $3::uuid,
			'user:' || $3::uuid, $4, 'grant:' || n, $5, $6 from generate_series(1, $7::int) n`
	add := func(ago, action, detail, request string, n int) {
		t.Helper()
		site.Fixture.Exec(insert, ago, site.Fixture.WorkspaceID, ada.ID, action, detail, request, n)
	}
	const policy = `{"before": {"days": 30}, "after": {"days": 7}}`
	add("1 minute", audit.GrantRevoked, `{"reason": "connector_policy"}`, "req-policy", 230)
	add("1 minute", audit.GrantRevoked, `{"reason": "connector_policy", "unused": true}`, "req-policy", 1)
	add("2 minutes", audit.ConnectorPolicyChanged, policy, "req-policy", 1)
	add("3 minutes", audit.MemberLeft, "{}", "", 2)
	add("4 minutes", audit.GrantRevoked, `{"reason": "disconnected_by_user"}`, "req-all", 3)
	add("5 minutes", audit.GrantRevoked, `{"reason": "disconnected_by_user"}`, "req-one", 1)
	add("6 minutes", audit.GrantRevoked, `{"reason": "disconnected_by_user"}`, "req-two", 1) // of two actors
	add("7 minutes", audit.MemberLeft, "{}", "req-two", 1)
	site.Fixture.Exec(`update account.audit_events set actor = 'system' where request_id = 'req-two' and action = $1`,
		audit.MemberLeft)
	browser := site.SignedIn(ada)
	page := browser.Get("/settings/audit")
	isLight(t, "the log", page)
	var titles []string
	for _, title := range page.Elements("h3") {
		titles = append(titles, browsertest.TextOf(title))
	}
	const left = "Left the workspace"
	site.Equal("lines", strings.Join(titles, "; "), "Changed the assistant rules; "+
		left+"; "+left+"; 3 connections ended; Disconnected an app; Disconnected an app; "+left)
	page.Says("access lasts 7 days instead of 30 · 230 connections ended · 1 unused approval ended",
		"Show each of the 232 events")
	each := browser.Get(page.Attribute("a[href*='request=req-policy']", "href"))
	site.Equal("lines of one request", len(each.Elements("h3")), 25)
	export := browser.Get("/settings/audit.csv?tenant=" + site.Fixture.WorkspaceID.String() + "&kind=access")
	site.Equal("rows of the act", strings.Count(export.Body, ",req-policy,"), 232)
	export.Omits(audit.MemberLeft)
}
