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
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Member(perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	for _, path := range []string{connect, "/settings/apps"} {
		page := browser.Get(path)
		if !strings.Contains(page.Body, `value="`+browsertest.Issuer+`/mcp"`) {
			t.Errorf("%s does not show the address", path)
		}
		for _, name := range []string{"Claude", "ChatGPT", "VS Code", "Cursor"} {
			if !page.HasText(name) {
				t.Errorf("%s does not name %s", path, name)
			}
		}
		if n := len(page.Elements("ol")); n != 4 {
			t.Errorf("%s: %d lists of steps", path, n)
		}
	}
	on := browser.Get(connect)
	if on.Status != http.StatusOK || !on.HasText("LLM integration on") || !on.HasText("See programmes") ||
		on.HasText("Ask an administrator") {
		t.Errorf("%d %s", on.Status, on.Text())
	}
	site.Fixture.Exec(`update account.tenant_features set enabled = false`)
	off := browser.Get(connect)
	if !off.HasText("LLM integration off") || off.HasText("See programmes") ||
		!off.HasText("No assistant can be connected until an administrator") {
		t.Errorf("switched off: %s", off.Text())
	}
	administrator := site.Member(perm.ProgrammesRead, perm.AccountAPIAccess, perm.AccountWriteMembers)
	if page := site.SignedIn(administrator).Get(connect); !page.HasText("Switch it on in Connectors") ||
		page.HasText("Ask an administrator") {
		t.Errorf("switched off, for an administrator: %s", page.Text())
	}
	site.Fixture.Exec(`update account.tenant_features set enabled = true`)
	for state, want := range map[string]string{
		"enabled = false":                     "The module Programmes is off in this workspace",
		"enabled = true, provisioned = false": "The module Programmes is not set up in this workspace yet",
	} {
		site.Fixture.Exec(`update account.tenant_modules set ` + state + ` where module = 'programmes'`)
		if page := browser.Get(connect); !page.HasText(want) || page.HasText("See programmes") {
			t.Errorf("%s: %s", state, page.Text())
		}
	}
	site.Fixture.Exec(`update account.tenant_modules set enabled = true, provisioned = true
		where module = 'programmes'`)
	const connectors = `href="/settings/connectors?tenant=`
	manager := site.SignedIn(site.Member(perm.ProgrammesRead, perm.AccountAPIAccess)).Get(connect)
	if !strings.Contains(manager.Body, "Change this in <a "+connectors) ||
		strings.Contains(browser.Get(connect).Body, connectors) {
		t.Error("want a link to Connectors for members whose only permission is to manage API access")
	}
	if page := site.SignedIn(site.Stranger()).Get(connect); !page.HasText("You are not a member of a workspace") {
		t.Errorf("a member of nothing: %s", page.Text())
	}
}

func TestConnectedApps_DisconnectAllEndsApprovalsOfOneApplication(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
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
	if strings.Count(page.Body, `<h3 class="name">`) != 2 {
		t.Errorf("want one row for each application: %s", page.Text())
	}
	browser.Post(all, url.Values{"key": form["key"], "id": {kept.ID.String()}}) // which is not an application
	const active = `select count(*) from account.grants where state = 'active' and user_id = $1`
	if n := site.Count(active, ada.ID); n != 3 {
		t.Fatalf("%d approvals after a form about nothing", n)
	}
	if after := browser.Post(all, form).Follow(); !after.HasText("was disconnected from all workspaces") ||
		!after.HasText("Connect again") {
		t.Errorf("%s", after.Text())
	}
	if site.Count(active, ada.ID) != 1 || site.Count(active, eve.ID) != 1 {
		t.Error("want only the user's approvals of this application ended")
	}
	if again := browser.Post(all, form).Follow(); !again.HasText("no longer connected") {
		t.Errorf("%s", again.Text())
	}
}
