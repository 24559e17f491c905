package settings_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestAudit_EveryActionHasWords(t *testing.T) {
	site := shared(t)
	var text strings.Builder
	for chunk := range slices.Chunk(audit.Descriptions(), 40) { // the page shows 50
		text.WriteString(logOf(t, site, chunk))
	}
	for _, words := range []string{" to: “See programmes”", "An administrator of the deployment"} {
		if !strings.Contains(text.String(), words) {
			t.Errorf("does not say %q", words)
		}
	}
}

// logOf returns the text of the audit log of a new workspace with one event of each action.
func logOf(t *testing.T, site *browsertest.Server, actions []audit.Description) string {
	t.Helper()
	site.Fixture = site.Fixture.For(t)
	ada := developer(site)
	for _, d := range actions {
		site.Fixture.Exec(`insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, detail)
			values ($1, $2, $3, 'admin', $4, 'x',
				'{"permissions": ["programmes:read:programmes"], "changes": ["enable"]}')`,
			uuid.New(), site.Fixture.WorkspaceID, ada.ID, d.Action)
	}
	log := site.SignedIn(ada).Get("/settings/audit")
	for _, d := range actions {
		log.Lacks(d.Action)
	}
	text := log.Text()
	if strings.Contains(text, "{") {
		t.Errorf("a detail was not filled in: %s", text)
	}
	if rows := len(log.Elements("tr")) - 1; rows != len(actions) {
		t.Errorf("%d rows for %d events", rows, len(actions))
	}
	return text
}

func TestApps_PausedConnectionNamesReason(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead, perm.ProgrammesWrite)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead, perm.ProgrammesWrite)
	site.Redeemed(app, ada.ID)
	browser := site.SignedIn(ada)
	const lost, without = "You no longer have any of these permissions", "Not available, because you no longer " +
		"have these permissions: "
	wants := func(holds []string, words string) {
		t.Helper()
		site.Fixture.Exec(`update account.memberships set permissions = $2 where user_id = $1`, ada.ID, holds)
		page := browser.Get("/settings/apps")
		for _, one := range []string{lost, without, "You are no longer a member of"} {
			if page.HasText(one) != (one == words) {
				t.Errorf("holding %v, says %q: %v", holds, one, page.HasText(one))
			}
		}
	}
	read, write := string(perm.ProgrammesRead), string(perm.ProgrammesWrite)
	wants([]string{read, write}, "")
	wants([]string{read}, without)
	wants([]string{}, lost)
	site.Fixture.Exec(`delete from account.memberships where user_id = $1`, ada.ID)
	const left = "You are no longer a member of Riverside Food Bank, so Donor sync has no access to it"
	browser.Get("/settings/apps").Says(left).Lacks(lost)
}
