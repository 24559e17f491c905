package settings_test

import (
	"net/url"
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
	browser.Post("/settings/apps/disconnect", url.Values{"key": form["key"], "id": {hers.ID.String()}})
	const active = `select count(*) from account.grants where id = $1 and state = 'active'`
	site.CountIs(1, active, hers.ID)
	form.Set("id", first.ID.String())
	browser.Post("/settings/apps/disconnect", form).Follow().Says("was disconnected", "You disconnected Donor sync.")
	site.CountIs(0, active, first.ID)
	site.CountIs(1, active, second.ID)
	site.Rows(1, "grants", `id = $1 and revoke_reason = 'disconnected_by_user'`, first.ID)
	browser.Post("/settings/apps/disconnect", form).Follow().Says("no longer connected")
}

func TestApps_ShowsReplayAsReason(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	app := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	g := site.Redeemed(app, ada.ID)
	if err := site.Grants.Revoke(t.Context(), g, grant.Replayed, "client:"+app.ID.String()); err != nil {
		t.Fatal(err)
	}
	browser := site.SignedIn(ada)
	const disconnected = "We disconnected Claude because an old access key of the application was used again. " +
		"It may have been copied."
	browser.Get("/settings/apps").Says(disconnected, "No connected apps")
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
	if err := site.Store.Revoke(t.Context(), g.Key(), grant.Replayed, "client:"+app.ID.String(), reuse); err != nil {
		t.Fatal(err)
	}
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

func TestApps_ListsExpiredGrantAsEnded(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	g := site.Redeemed(app, ada.ID)
	site.Fixture.Exec(`update account.grants set ends_at = now() - interval '1 hour' where id = $1`, g.ID)
	const expired = "The access that you gave to Donor sync has expired."
	site.SignedIn(ada).Get("/settings/apps").Says(expired, "No connected apps")
}
