package settings_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestAudit_EventsHaveRequestID(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	ids := map[string]bool{}
	do := func(page *browsertest.Page, status int) *browsertest.Page {
		t.Helper()
		page.Wants(status)
		ids[page.Header.Get("X-Request-Id")] = true
		return page
	}
	consentPath := "/oauth/authorize?" + url.Values{
		"client_id":    {app.ID.String()},
		"redirect_uri": {app.Redirects[0]},
		"state":        {"s"},
	}.Encode()
	consent := browser.Get(consentPath)
	do(consent.Send("/oauth/authorize", browsertest.Fields{"decision": "approve"}), http.StatusSeeOther)
	site.Redeemed(app, ada.ID) // not an HTTP request, so it has no request id
	do(browser.Get("/settings/apps").Send("/settings/apps/disconnect", nil), http.StatusSeeOther)
	site.Redeemed(app, ada.ID)
	do(browser.Get(applications).Send(apps+"/delete", browsertest.Fields{"id": app.ID.String()}), http.StatusSeeOther)
	do(browser.Post(tokens, tokenForm(browser.Get(newToken), "export", "7", perm.ProgrammesRead)), http.StatusOK)
	rows, err := site.Fixture.Owner.Query(t.Context(),
		`select action, request_id from account.audit_events where tenant_id = $1`, site.Fixture.WorkspaceID)
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]int{}
	for rows.Next() {
		var action, id string
		if err := rows.Scan(&action, &id); err != nil {
			t.Fatal(err)
		}
		if ids[id] {
			named[action]++
		} else if _, err := uuid.Parse(id); err == nil || action != audit.GrantConsented {
			t.Errorf("%s names the request %q", action, id)
		}
	}
	// One consent on the page. Of the revocations, one is a disconnection and two come with the deletion of the
	// application: its active grant and the pending one of the page.
	for action, want := range map[string]int{
		audit.GrantConsented: 1,
		audit.GrantRevoked:   3,
		audit.ClientDeleted:  1,
		audit.TokenCreated:   1,
	} {
		if named[action] != want {
			t.Errorf("%s: %d of %d name their request", action, named[action], want)
		}
	}
}
