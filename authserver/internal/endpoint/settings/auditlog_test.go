package settings_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestAudit_PagesAndExportAllEventsOfItsWorkspace(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	elsewhere := site.Fixture.Workspace("Hillside Youth Club")
	const events = 1234
	site.Fixture.Exec(`insert into account.audit_events (id, at, tenant_id, user_id, actor, action, subject, detail)
		select gen_random_uuid(), now() - (n / 7) * interval '1 minute', $1, $2::uuid, 'user:' || $2::uuid,
			'test.happened', 'n:' || n, jsonb_build_object('n', n)
		from generate_series(1, $3::int) n`, site.Fixture.WorkspaceID, ada.ID, events)
	site.Fixture.Exec(`insert into account.audit_events (id, tenant_id, actor, action, subject)
			values (gen_random_uuid(), $1, 'admin', 'secret.happened', 'x')`, elsewhere)
	browser := site.SignedIn(ada)
	export := browser.Get("/settings/audit.jsonl?tenant=" + site.Fixture.WorkspaceID.String())
	if export.Status != http.StatusOK || !strings.HasPrefix(export.Header.Get("Content-Disposition"), "attachment") {
		t.Fatalf("%d %v", export.Status, export.Header)
	}
	seen, previous := map[string]bool{}, "9999"
	for _, text := range strings.Split(strings.TrimSpace(export.Body), "\n") {
		var line struct {
			ID, At, Action, Subject string
			WorkspaceID             string `json:"tenantId"`
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if line.WorkspaceID != site.Fixture.WorkspaceID.String() || seen[line.ID] ||
			line.At > previous+"~" && len(line.At) == len(previous) {
			t.Fatalf("event of another workspace, repeated, or out of order: %s", text)
		}
		seen[line.ID], previous = true, line.At
	}
	if len(seen) != events+1 { // and the event of the export itself
		t.Errorf("%d lines", len(seen))
	}
	shown := 0
	for page := browser.Get("/settings/audit"); ; {
		page.Wants(http.StatusOK)
		rows := len(page.Elements("tr")) - 1
		shown += rows
		page.Lacks("secret.happened")
		older := page.Attribute("a[href*='before=']", "href")
		if older == "" {
			break
		}
		page = browser.Get(older)
	}
	if shown != events+1 {
		t.Errorf("%d events on all pages", shown)
	}
	browser.Get("/settings/audit?before=rubbish").Wants(http.StatusOK, "Exported the audit log")
}
