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
		workspace: b.Fixture.WorkspaceID.String(),
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

func (b *testEnv) apply(file string, dryRun bool) admin.Applied {
	b.t.Helper()
	result, err := b.do(b.t.Context(), admin.Apply{From: strings.NewReader(file), DryRun: dryRun})
	if err != nil {
		b.t.Fatal(err)
	}
	applied, ok := result.(admin.Applied)
	if !ok {
		b.t.Fatalf("%T", result)
	}
	return applied
}

func actions(applied admin.Applied) string {
	var all []string
	for _, c := range applied.Clients {
		all = append(all, c.Action)
	}
	return strings.Join(all, " ")
}

func (b *testEnv) client(id string) client.Client {
	b.t.Helper()
	found, err := b.Store.Client(b.t.Context(), uuid.MustParse(id))
	if err != nil {
		b.t.Fatal(err)
	}
	return found
}

func TestApply_CreatesClientsThatWork(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	file := b.clientsFile()
	applied := b.apply(file.String(), false)
	if got := actions(applied); got != "create create create" {
		t.Fatalf("%s", got)
	}
	app, service := applied.Clients[0], applied.Clients[2]
	for _, secret := range []string{app.Secret, service.Secret} {
		if !credential.ClientSecret.Matches(secret) {
			t.Error("a client with a secret was created without one")
		}
	}
	if applied.Clients[1].Secret != "" {
		t.Error("a connector has a secret")
	}
	b.Linked(b.client(file.app), credential.Secret(app.Secret), b.user)
	b.Connected(b.client(file.connector), b.user)
	introspected := b.FormWith(apitest.IntrospectPath, apitest.Basic(file.service, credential.Secret(service.Secret)),
		"token", b.Fixture.Token(b.user, perm.ProgrammesRead).Reveal())
	if introspected.Status != 200 {
		t.Errorf("introspection: %d", introspected.Status)
	}
	b.events(string(audit.ClientRegistered), "client:"+file.app, 1)
}

func TestApply_SecondRunChangesOnlyDifferences(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	file := b.clientsFile()
	secret := credential.Secret(b.apply(file.String(), false).Clients[0].Secret)
	again := b.apply(file.String(), false)
	if got := actions(again); got != "none none none" || again.Clients[0].Secret != "" {
		t.Errorf("the same file: %s", got)
	}
	b.events(string(audit.ClientChanged), "client:"+file.app, 0)
	file.name = "Donor import"
	changed := b.apply(file.String(), false)
	if got := actions(changed); got != "change none none" || strings.Join(changed.Clients[0].Changed, " ") != "name" ||
		changed.Clients[0].Secret != "" {
		t.Errorf("another name: %+v", changed.Clients[0])
	}
	b.events(string(audit.ClientChanged), "client:"+file.app, 1)
	if c := b.client(file.app); c.Name != "Donor import" {
		t.Errorf("the name is %s", c.Name)
	}
	b.Linked(b.client(file.app), secret, b.user) // the secret still works
}

func TestApply_DryRunChangesNothing(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	file := b.clientsFile()
	dry := b.apply(file.String(), true)
	if got := actions(dry); got != "create create create" || dry.Clients[0].Secret != "" || !dry.DryRun {
		t.Errorf("%s", got)
	}
	if _, err := b.Store.Client(t.Context(), uuid.MustParse(file.app)); !errors.Is(err, client.ErrUnknown) {
		t.Errorf("a dry run: %v", err)
	}
	b.apply(file.String(), false)
	file.name = "Donor import"
	if got := actions(b.apply(file.String(), true)); got != "change none none" {
		t.Errorf("%s", got)
	}
	if c := b.client(file.app); c.Name != "Donor sync" {
		t.Errorf("a dry run changed the name to %s", c.Name)
	}
}

func TestApply_InvalidFileChangesNothing(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	deleted := b.clientsFile()
	b.apply(deleted.String(), false)
	b.values(b.do(t.Context(), admin.DeleteClient{Client: deleted.service}))
	existing := b.clientsFile()
	b.apply(existing.String(), false)
	valid := b.clientsFile()
	for name, file := range map[string]string{
		"empty":             "",
		"no list":           "clients: {}",
		"unknown member":    strings.Replace(valid.String(), "redirectUris", "redirectURIs", 1),
		"duplicate member":  strings.Replace(valid.String(), "name: Reporting", "name: A\n    name: B", 1),
		"two documents":     valid.String() + "\n---\nclients: []\n",
		"no id":             strings.Replace(valid.String(), valid.service, "reporting", 1),
		"id twice":          strings.Replace(valid.String(), valid.service, valid.app, 1),
		"unknown kind":      strings.Replace(valid.String(), "kind: service", "kind: daemon", 1),
		"callback":          strings.Replace(valid.String(), fixture.Callback, "http://example.org/", 1),
		"permission":        strings.Replace(valid.String(), "programmes:read", "programmes:reed", 1),
		"resource":          strings.Replace(valid.String(), apitest.MCP, apitest.MCP+"/", 1),
		"invisible name":    strings.Replace(valid.String(), "Donor sync", "\u3164", 1),
		"unknown workspace": strings.ReplaceAll(valid.String(), valid.workspace, uuid.NewString()),
		"service's scope":   strings.Replace(valid.String(), "name: Reporting", "name: R\n    resource: x", 1),
		"deleted id":        strings.Replace(valid.String(), valid.service, deleted.service, 1),
		"other kind":        strings.Replace(valid.String(), valid.service, existing.app, 1),
		"other workspace": strings.Replace(
			strings.Replace(valid.String(), valid.app, existing.app, 1),
			valid.workspace, b.Fixture.Workspace("Harbour Kitchen").String(), 1,
		),
		"too large": valid.String() + strings.Repeat("#", 1<<20),
	} {
		result, err := b.do(t.Context(), admin.Apply{From: strings.NewReader(file)})
		b.refused(name, result, err)
		for _, id := range []string{valid.app, valid.connector, valid.service} {
			if _, err := b.Store.Client(t.Context(), uuid.MustParse(id)); !errors.Is(err, client.ErrUnknown) {
				t.Errorf("%s: client of a refused file: %v", name, err)
			}
		}
	}
}

func TestSetClient_KeepsWhatIsNotGiven(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	added := b.values(b.do(t.Context(), admin.AddClient{
		Workspace:   b.Fixture.WorkspaceID.String(),
		Name:        "Donor sync",
		Redirects:   []string{fixture.Callback, "https://old.example.org/cb"},
		Permissions: []string{string(perm.ProgrammesRead)},
	}))
	id, secret := b.text(added, "clientId"), credential.Secret(b.text(added, "clientSecret"))
	held := b.Linked(b.client(id), secret, b.user)
	result, err := b.do(t.Context(), admin.SetClient{Client: id, RedirectURI: []string{fixture.Callback}})
	b.values(result, err)
	c := b.client(id)
	if len(c.Redirects) != 1 || c.Name != "Donor sync" || c.Required.Scope() != string(perm.ProgrammesRead) {
		t.Errorf("%+v", c)
	}
	if g := b.Stored(held.Grant); g.State != "active" {
		t.Errorf("the grant is %s", g.State)
	}
	const another = "https://new.example.org/cb"
	b.values(b.do(t.Context(), admin.SetClient{Client: id, AddRedirect: []string{another, fixture.Callback}}))
	if c := b.client(id); !slices.Equal(c.Redirects, []string{fixture.Callback, another}) {
		t.Errorf("%v", c.Redirects)
	}
	bad := "netscape"
	result, err = b.do(t.Context(), admin.SetClient{Client: id, Platform: &bad})
	b.refused("platform of a confidential client", result, err)
	result, err = b.do(t.Context(), admin.SetClient{Client: uuid.NewString()})
	b.refused("unknown client", result, err)
	result, err = b.do(t.Context(), admin.AddClient{
		ID:          id,
		Workspace:   b.Fixture.WorkspaceID.String(),
		Name:        "Reporting",
		Redirects:   []string{fixture.Callback},
		Permissions: []string{string(perm.ProgrammesRead)},
	})
	b.refused("an id in use", result, err)
}

func TestReplaceClientSecret_PreviousSecretExpires(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	added := b.values(b.do(t.Context(), admin.AddService{Name: "Reporting"}))
	id := b.text(added, "clientId")
	works := func(values map[string]any) bool {
		secret := credential.Secret(b.text(values, "clientSecret"))
		return b.FormWith(apitest.IntrospectPath, apitest.Basic(id, secret), "token", "x").Status == 200
	}
	second := b.values(b.do(t.Context(), admin.ReplaceClientSecret{Client: id}))
	if !works(added) || !works(second) {
		t.Error("both secrets must work for a day")
	}
	third := b.values(b.do(t.Context(), admin.ReplaceClientSecret{Client: id, ExpireOld: true}))
	if works(added) || works(second) || !works(third) {
		t.Error("only the newest secret must work")
	}
	b.events(string(audit.ClientSecretReplaced), "client:"+id, 2)
	result, err := b.do(t.Context(), admin.ReplaceClientSecret{Client: b.app.ID.String()})
	b.refused("a connector", result, err)
	result, err = b.do(t.Context(), admin.ReplaceClientSecret{Client: uuid.NewString()})
	b.refused("unknown client", result, err)
}

func TestApplied_PrintsSecretsOnce(t *testing.T) {
	t.Parallel()
	applied := admin.Applied{Clients: []admin.AppliedClient{
		{Kind: "service", Name: "Reporting", Action: "create", Secret: "alm_cs_x"},
		{Kind: "connector", Name: "Claude", Action: "change", Changed: []string{"redirectUris"}},
	}}
	var text strings.Builder
	if err := applied.Text(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"only once: alm_cs_x", "Claude (connector): redirectUris", "1 created, 1 changed"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	if encoded, err := json.Marshal(applied); err != nil || !strings.Contains(string(encoded), `"action":"create"`) {
		t.Errorf("%s %v", encoded, err)
	}
}
