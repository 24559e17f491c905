package settings_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

const connect = "/settings/connect"

func TestConnect_ShowsAddressPermissionsAndLLMIntegration(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(site.Member(perm.ProgrammesRead))
	for _, path := range []string{connect, "/settings/apps"} {
		page := browser.Get(path)
		page.As(path).Contains(`value="` + browsertest.Issuer + `/mcp"`)
		page.As(path).Says("Claude", "ChatGPT", "VS Code", "Cursor")
		if n := len(page.Elements("ol")); n != 4 {
			t.Errorf("%s: %d lists of steps", path, n)
		}
	}
	browser.Get(connect).Wants(http.StatusOK, "LLM integration on", "See programmes").Lacks("Ask an administrator")
	site.Fixture.Exec(`update account.tenant_features set enabled = false where tenant_id = $1`,
		site.Fixture.WorkspaceID)
	browser.Get(connect).Says("LLM integration off", "No assistant can be connected until an administrator").
		Lacks("See programmes")
	administrator := site.Member(perm.ProgrammesRead, perm.AccountAPIAccess, perm.AccountWriteMembers)
	site.SignedIn(administrator).Get(connect).Says("Switch it on in Connectors").Lacks("Ask an administrator")
	site.Fixture.Exec(`update account.tenant_features set enabled = true where tenant_id = $1`,
		site.Fixture.WorkspaceID)
	for state, want := range map[string]string{
		"enabled = false":                     "The module Programmes is off in this workspace",
		"enabled = true, provisioned = false": "The module Programmes is not set up in this workspace yet",
	} {
		site.Fixture.Exec(`update account.tenant_modules set `+state+` where module = 'programmes' and tenant_id = $1`,
			site.Fixture.WorkspaceID)
		browser.Get(connect).As(state).Says(want).Lacks("See programmes")
	}
	site.Fixture.Exec(`update account.tenant_modules set enabled = true, provisioned = true
		where module = 'programmes' and tenant_id = $1`, site.Fixture.WorkspaceID)
	const connectors = `href="/settings/connectors?tenant=`
	manager := site.SignedIn(site.Member(perm.ProgrammesRead, perm.AccountAPIAccess)).Get(connect)
	if !strings.Contains(manager.Body, "Change this in <a "+connectors) ||
		strings.Contains(browser.Get(connect).Body, connectors) {
		t.Error("want a link to Connectors for members whose only permission is to manage API access")
	}
	site.SignedIn(site.Stranger()).Get(connect).Says("You are not a member of a workspace")
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
	page := browser.Get("/settings/apps")
	const all = "/settings/apps/disconnect-all"
	form := page.Form(all)
	if rows := strings.Count(page.Body, `action="`+all+`"`); rows != 1 || form.Get("id") != app.ID.String() {
		t.Fatalf("%d forms, of %s", rows, form.Get("id"))
	}
	page.Times(2, `<h3 class="name">`)
	browser.Post(all, url.Values{"key": form["key"], "id": {kept.ID.String()}}) // which is not an application
	const active = `select count(*) from account.grants where state = 'active' and user_id = $1`
	site.CountIs(3, active, ada.ID)
	browser.Post(all, form).Follow().Says("was disconnected from all workspaces", "Connect again")
	site.CountIs(1, active, ada.ID)
	site.CountIs(1, active, eve.ID)
	browser.Post(all, form).Follow().Says("no longer connected")
}
