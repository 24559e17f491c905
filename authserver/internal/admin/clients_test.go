package admin_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

func TestAddService_IntrospectsUntilDeleted(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	added := b.values(b.do(t.Context(), admin.AddService{Name: "Reporting"}))
	id, secret := b.text(added, "clientId"), credential.Secret(b.text(added, "clientSecret"))
	if !credential.ClientSecret.Matches(secret.Reveal()) {
		t.Error("the secret does not have the format of a client secret")
	}
	token := b.Fixture.Token(b.user, perm.ProgrammesRead)
	introspect := func() int {
		return b.FormWith(apitest.IntrospectPath, apitest.Basic(id, secret), "token", token.Reveal()).Status
	}
	if status := introspect(); status != 200 {
		t.Errorf("introspection: %d", status)
	}
	b.events(audit.ClientRegistered, "client:"+id, 1)
	const unhashed = `select count(*) from account.client_secrets where hash <> sha256($1)`
	logged := b.Count(`select count(*) from account.audit_events where detail::text like '%alm_cs_%'`)
	if n := logged + b.Count(unhashed, []byte(secret.Reveal())); n != 0 {
		t.Error("the secret is stored")
	}
	b.values(b.do(t.Context(), admin.DeleteClient{Client: id}))
	if status := introspect(); status != 401 {
		t.Errorf("introspection after the deletion: %d", status)
	}
	b.events(audit.ClientDeleted, "client:"+id, 1)
	result, err := b.do(t.Context(), admin.AddService{Name: " "})
	b.refused("no name", result, err)
}

func TestClients_AreListedWithGrants(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	b.Connected(b.app, b.user)
	b.values(b.do(t.Context(), admin.AddService{Name: "Reporting"}))
	gone, _ := b.Fixture.Confidential(perm.ProgrammesRead)
	b.values(b.do(t.Context(), admin.DeleteClient{Client: gone.ID.String()}))
	all := b.list(b.do(t.Context(), admin.ListClients{}))
	if len(all) != 2 || all[0]["kind"] != "service" || all[0]["tenantId"] != nil || all[1]["id"] != b.app.ID.String() ||
		all[1]["activeGrants"] != float64(1) || all[1]["tenant"] != "Riverside Food Bank" {
		t.Errorf("%v", all)
	}
	if own := b.list(b.do(t.Context(), admin.ListClients{Workspace: b.Fixture.WorkspaceID.String()})); len(own) != 1 {
		t.Errorf("%v", own)
	}
	if none := b.list(b.do(t.Context(), admin.ListClients{Workspace: uuid.NewString()})); len(none) != 0 {
		t.Errorf("%v", none)
	}
	for _, id := range []string{gone.ID.String(), uuid.NewString(), "app", ""} {
		result, err := b.do(t.Context(), admin.DeleteClient{Client: id})
		b.refused("client "+id, result, err)
	}
	result, err := b.do(t.Context(), admin.ListClients{Workspace: "main"})
	b.refused("tenant of no shape", result, err)
}

func TestDeleteClient_RevokesGrants(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	sibling := b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	remaining := b.Connected(sibling, b.user)
	got := b.values(b.do(t.Context(), admin.DeleteClient{Client: b.app.ID.String()}))
	if got["revokedGrants"] != float64(1) {
		t.Errorf("%v", got)
	}
	if g := b.Stored(held.Grant); g.State != grant.Revoked || g.Reason != grant.ClientDeleted {
		t.Errorf("its grant is %s (%s)", g.State, g.Reason)
	}
	const deleted = `select count(*) from account.audit_events
		where action = '` + audit.ClientDeleted + `' and tenant_id = $1`
	if n := b.Count(deleted, b.Fixture.WorkspaceID); n != 1 {
		t.Error("the event does not name the client's workspace")
	}
	b.Refreshed(sibling, remaining)
}
