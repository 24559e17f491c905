package admin_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A clientsFile is a clients file with one client of each kind.
type clientsFile struct{ app, connector, service, workspace, name string }

func (b *testEnv) clientsFile() clientsFile {
	return clientsFile{
		app:       uuid.NewString(),
		connector: uuid.NewString(),
		service:   uuid.NewString(),
		workspace: b.workspace,
		name:      "Donor sync",
	}
}

func (f clientsFile) String() string {
	return strings.NewReplacer("APP", f.app, "CONNECTOR", f.connector, "SERVICE", f.service, "WORKSPACE", f.workspace,
		"NAME", f.name, "CALLBACK", fixture.Callback, "RESOURCE", apitest.MCP).Replace(`
clients:
  - id: APP
    kind: confidential
    workspace: WORKSPACE
    name: NAME
    redirectUris: [CALLBACK]
    requiredPermissions: [programmes:read:programmes]
  - id: CONNECTOR
    kind: connector
    workspace: WORKSPACE
    name: Claude
    redirectUris: [CALLBACK]
    requiredPermissions: [programmes:read:programmes]
    connectorPlatform: claude
    resource: RESOURCE
  - id: SERVICE
    kind: service
    name: Reporting
`)
}

// apply applies a file and requires the actions that it takes.
func (b *testEnv) apply(file clientsFile, dryRun bool, actions string) []admin.AppliedClient {
	b.t.Helper()
	applied := b.do(admin.Apply{From: strings.NewReader(file.String()), DryRun: dryRun}).(admin.Applied)
	var all []string
	for _, c := range applied.Clients {
		all = append(all, c.Action)
	}
	if got := strings.Join(all, " "); got != actions || applied.DryRun != dryRun {
		b.t.Fatalf("%s, dry run: %t, want %s", got, applied.DryRun, actions)
	}
	return applied.Clients
}

func (b *testEnv) client(id string) client.Client {
	b.t.Helper()
	found, err := b.Store.Client(b.t.Context(), uuid.MustParse(id))
	b.Must(err)
	return found
}

// absent requires that no client of a file exists.
func (b *testEnv) absent(what string, file clientsFile) {
	b.t.Helper()
	b.WantsRows(what, 0, `account.oauth_clients where id::text in ($1, $2, $3)`, file.app, file.connector, file.service)
}

// introspects returns the status with which a service introspects.
func (b *testEnv) introspects(id string, secret credential.Secret) int {
	b.t.Helper()
	token := b.Fixture.Token(b.user, perm.ProgrammesRead)
	return b.FormWith(apitest.IntrospectPath, apitest.Basic(id, secret), "token", token.Reveal()).Status
}

func TestApply_CreatesClientsThatWork(t *testing.T) {
	b := newTestEnv(t)
	file := b.clientsFile()
	applied := b.apply(file, false, "create create create")
	app, service := credential.Secret(applied[0].Secret), credential.Secret(applied[2].Secret)
	if !credential.ClientSecret.Matches(app.Reveal()) || !credential.ClientSecret.Matches(service.Reveal()) ||
		applied[1].Secret != "" {
		t.Error("a client with a secret was created without one, or a connector with one")
	}
	b.Linked(b.client(file.app), app, b.user)
	b.Connected(b.client(file.connector), b.user)
	b.Equal("introspection", b.introspects(file.service, service), 200)
	b.events(audit.ClientRegistered, "client:"+file.app, 1)
}

func TestApply_SecondRunChangesOnlyDifferences(t *testing.T) {
	b := newTestEnv(t)
	file := b.clientsFile()
	secret := credential.Secret(b.apply(file, false, "create create create")[0].Secret)
	b.Equal("secret of the same file", b.apply(file, false, "none none none")[0].Secret, "")
	b.events(audit.ClientChanged, "client:"+file.app, 0)
	file.name = "Donor import"
	changed := b.apply(file, false, "change none none")[0]
	if !slices.Equal(changed.Changed, []string{"name"}) || changed.Secret != "" {
		t.Errorf("another name: %v", changed.Changed)
	}
	b.events(audit.ClientChanged, "client:"+file.app, 1)
	c := b.client(file.app)
	b.Equal("the name", c.Name, "Donor import")
	b.Linked(c, secret, b.user) // the secret still works
}

func TestApply_DryRunChangesNothing(t *testing.T) {
	b := newTestEnv(t)
	file := b.clientsFile()
	b.Equal("secret of a dry run", b.apply(file, true, "create create create")[0].Secret, "")
	b.absent("a dry run", file)
	b.apply(file, false, "create create create")
	file.name = "Donor import"
	b.apply(file, true, "change none none")
	b.Equal("the name after a dry run", b.client(file.app).Name, "Donor sync")
}

func TestApply_InvalidFileChangesNothing(t *testing.T) {
	b := newTestEnv(t)
	deleted, existing, valid := b.clientsFile(), b.clientsFile(), b.clientsFile()
	b.apply(deleted, false, "create create create")
	b.do(admin.DeleteClient{Client: deleted.service})
	b.apply(existing, false, "create create create")
	with := func(old, changed string) string { return strings.Replace(valid.String(), old, changed, 1) }
	moved := valid
	moved.app, moved.workspace = existing.app, b.Fixture.Workspace("Harbour Kitchen").String()
	for name, file := range map[string]string{
		"empty":             "",
		"no list":           "clients: {}",
		"unknown member":    with("redirectUris", "redirectURIs"),
		"duplicate member":  with("name: Reporting", "name: A\n    name: B"),
		"two documents":     valid.String() + "\n---\nclients: []\n",
		"no id":             with(valid.service, "reporting"),
		"id twice":          with(valid.service, valid.app),
		"unknown kind":      with("kind: service", "kind: daemon"),
		"callback":          with(fixture.Callback, "http://example.org/"),
		"permission":        with("programmes:read", "programmes:reed"),
		"resource":          with(apitest.MCP, apitest.MCP+"/"),
		"invisible name":    with("Donor sync", "\u3164"),
		"unknown workspace": strings.ReplaceAll(valid.String(), valid.workspace, uuid.NewString()),
		"service's scope":   with("name: Reporting", "name: R\n    resource: x"),
		"deleted id":        with(valid.service, deleted.service),
		"other kind":        with(valid.service, existing.app),
		"other workspace":   moved.String(),
		"too large":         valid.String() + strings.Repeat("#", 1<<20),
	} {
		b.refused(name, admin.Apply{From: strings.NewReader(file)})
		b.absent(name, valid)
	}
}

func TestSetClient_KeepsWhatIsNotGiven(t *testing.T) {
	b := newTestEnv(t)
	add := admin.AddClient{
		Workspace:   b.workspace,
		Name:        "Donor sync",
		Redirects:   []string{fixture.Callback, "https://old.example.org/cb"},
		Permissions: []string{string(perm.ProgrammesRead)},
	}
	added := b.values(add)
	id, secret := b.text(added, "clientId"), credential.Secret(b.text(added, "clientSecret"))
	held := b.Linked(b.client(id), secret, b.user)
	b.do(admin.SetClient{Client: id, RedirectURI: []string{fixture.Callback}})
	c := b.client(id)
	if len(c.Redirects) != 1 || c.Name != "Donor sync" || c.Required.Scope() != string(perm.ProgrammesRead) {
		t.Errorf("%+v", c)
	}
	b.WantsGrant("of a changed client", held.Grant, grant.Active, "")
	const another = "https://new.example.org/cb"
	b.do(admin.SetClient{Client: id, AddRedirect: []string{another, fixture.Callback}})
	b.Equal("redirect URIs", b.client(id).Redirects, []string{fixture.Callback, another})
	bad := "netscape"
	add.ID = id
	b.allRefused(map[string]admin.Command{
		"platform of a confidential client": admin.SetClient{Client: id, Platform: &bad},
		"unknown client":                    admin.SetClient{Client: uuid.NewString()},
		"an id in use":                      add,
	})
}

func TestReplaceClientSecret_PreviousSecretExpires(t *testing.T) {
	b := newTestEnv(t)
	first := b.values(admin.AddService{Name: "Reporting"})
	id := b.text(first, "clientId")
	works := func(values map[string]any) bool {
		return b.introspects(id, credential.Secret(b.text(values, "clientSecret"))) == 200
	}
	second := b.values(admin.ReplaceClientSecret{Client: id})
	if !works(first) || !works(second) {
		t.Error("both secrets must work for a day")
	}
	third := b.values(admin.ReplaceClientSecret{Client: id, ExpireOld: true})
	if works(first) || works(second) || !works(third) {
		t.Error("only the newest secret must work")
	}
	b.events(audit.ClientSecretReplaced, "client:"+id, 2)
	b.refused("a connector", admin.ReplaceClientSecret{Client: b.app.ID.String()})
	b.refused("unknown client", admin.ReplaceClientSecret{Client: uuid.NewString()})
}

func TestApplied_PrintsSecretsOnce(t *testing.T) {
	t.Parallel()
	applied := admin.Applied{Clients: []admin.AppliedClient{
		{Kind: "service", Name: "Reporting", Action: "create", Secret: "alm_cs_x"},
		{Kind: "connector", Name: "Claude", Action: "change", Changed: []string{"redirectUris"}},
	}}
	var text strings.Builder
	encoded, err := json.Marshal(applied)
	err = errors.Join(err, applied.Text(&text))
	if err != nil || !strings.Contains(string(encoded), `"action":"create"`) {
		t.Errorf("%s %v", encoded, err)
	}
	for _, want := range []string{"only once: alm_cs_x", "Claude (connector): redirectUris", "1 created, 1 changed"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
}

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
