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
	b := newTestEnv(t)
	added := b.values(admin.AddService{Name: "Reporting"})
	id, secret := b.text(added, "clientId"), credential.Secret(b.text(added, "clientSecret"))
	if status := b.introspects(id, secret); status != 200 || !credential.ClientSecret.Matches(secret.Reveal()) {
		t.Errorf("introspection: %d", status)
	}
	b.events(audit.ClientRegistered, "client:"+id, 1)
	b.WantsRows("hashes of the secret", 1, `account.client_secrets where client_id = $1 and hash = sha256($2)`, id,
		[]byte(secret.Reveal()))
	b.WantsRows("events with a secret", 0, `account.audit_events where detail::text like '%alm_cs_%'`)
	b.do(admin.DeleteClient{Client: id})
	b.Equal("introspection after the deletion", b.introspects(id, secret), 401)
	b.events(audit.ClientDeleted, "client:"+id, 1)
	b.refused("no name", admin.AddService{Name: " "})
}

func TestClients_AreListedWithGrants(t *testing.T) {
	b := newTestEnv(t)
	b.connected()
	service := b.text(b.values(admin.AddService{Name: "Reporting"}), "clientId")
	c, _ := b.Fixture.Confidential(perm.ProgrammesRead)
	gone := c.ID.String()
	b.do(admin.DeleteClient{Client: gone})
	all := b.list(admin.ListClients{})
	app := find(all, "id", b.app.ID.String())
	if one := find(all, "id", service); one["kind"] != "service" || one["tenantId"] != nil ||
		find(all, "id", gone) != nil || app["activeGrants"] != 1.0 || app["tenant"] != "Riverside Food Bank" {
		t.Errorf("%v %v", one, app)
	}
	b.Equal("of the workspace", len(b.list(admin.ListClients{Workspace: b.workspace})), 1)
	b.Equal("of no workspace", len(b.list(admin.ListClients{Workspace: uuid.NewString()})), 0)
	b.allRefused(map[string]admin.Command{
		"deleted":            admin.DeleteClient{Client: gone},
		"unknown":            admin.DeleteClient{Client: uuid.NewString()},
		"of no shape":        admin.DeleteClient{Client: "app"},
		"none":               admin.DeleteClient{},
		"tenant of no shape": admin.ListClients{Workspace: "main"},
	})
}

func TestDeleteClient_RevokesGrants(t *testing.T) {
	b := newTestEnv(t)
	held := b.connected()
	sibling := b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	remaining := b.Connected(sibling, b.user)
	b.wants("deleted", admin.DeleteClient{Client: b.app.ID.String()}, map[string]any{"revokedGrants": 1.0})
	b.WantsGrant("its grant", held.Grant, grant.Revoked, grant.ClientDeleted)
	b.WantsRows("events that name the workspace", 1, `account.audit_events where tenant_id = $1
		and action = '`+audit.ClientDeleted+`'`, b.Fixture.WorkspaceID)
	b.Refreshed(sibling, remaining)
}
