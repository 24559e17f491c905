package settings_test

import (
	"net/http"
	"testing"

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
	const disconnected = "We disconnected Claude because an old access key of the application was used again. " +
		"It may have been copied."
	browser.Get("/settings/apps").
		Says(disconnected, "The access that you gave to Donor sync has expired.", "No connected apps")
	const event = "Claude was disconnected because an old refresh token was used again. It may have been copied."
	browser.Get("/settings/security").Says(event)
}

// The user's page, the connection log and the audit log show why a connection ended, and how to connect again.
func TestApps_ShowsProbableCauseOfReplay(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead, perm.AccountAPIAccess)
	app := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	g := site.Redeemed(app, ada.ID)
	reuse := &grant.Reuse{SuccessorUsed: true, Seconds: 7200, Network: "203.0.113.0/24", UserAgent: "<b>curl/8"}
	site.Must(site.Store.Revoke(t.Context(), g.Key(), grant.Replayed, "client:"+app.ID.String(), reuse))
	const words = "It looks like theft: the replacement had already been used 2 hours before. The request came from " +
		"203.0.113.0/24 (“<b>curl/8”)."
	browser, tenant := site.SignedIn(ada), "?tenant="+site.Fixture.WorkspaceID.String()
	for path, way := range map[string]string{
		"/settings/apps":                "Connect again",
		"/settings/security":            "connect it again with the same choices",
		"/settings/audit" + tenant:      "connect it again with the same choices",
		"/settings/connectors" + tenant: "connects it again, with the same choices",
	} {
		browser.Get(path).As(path).Says(words, way)
	}
}

const connect = "/settings/connect"

func TestConnect_ShowsAddressPermissionsAndLLMIntegration(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(site.Member(perm.ProgrammesRead))
	for _, path := range []string{connect, "/settings/apps"} {
		page := browser.Get(path).As(path).Says("Claude", "ChatGPT", "VS Code", "Cursor")
		page.Contains(`value="`+mcp+`"`).Times(4, "<ol") // lists of steps
	}
	browser.Get(connect).Wants(http.StatusOK, "LLM integration on", "See programmes").Lacks("Ask an administrator")
	site.Fixture.SetLLM(false)
	browser.Get(connect).Says("LLM integration off", "No assistant can be connected until an administrator").
		Lacks("See programmes")
	administrator := site.Member(perm.ProgrammesRead, perm.AccountAPIAccess, perm.AccountWriteMembers)
	site.SignedIn(administrator).Get(connect).Says("Switch it on in Connectors").Lacks("Ask an administrator")
	site.Fixture.SetLLM(true)
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
	site.SignedIn(developer(site, perm.ProgrammesRead)).Get(connect).Contains("Change this in <a " + connectors)
	browser.Get(connect).Omits(connectors)
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
