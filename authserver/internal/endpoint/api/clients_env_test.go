package api_test

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A clientsEnv is a server with a registrar, a member who holds account:api:access and programmes:read:programmes.
type clientsEnv struct {
	*apitest.Server
	t         *testing.T
	registrar uuid.UUID
	token     credential.Secret
}

func newClientsEnv(t *testing.T, changes ...apitest.Change) *clientsEnv {
	t.Helper()
	b := &clientsEnv{Server: apitest.Own(t, changes...), t: t}
	b.registrar = b.Fixture.Member(perm.AccountAPIAccess, perm.ProgrammesRead)
	b.token = b.Fixture.Token(b.registrar, perm.AccountAPIAccess, perm.ProgrammesRead)
	return b
}

func pathOf(workspaceID uuid.UUID) string {
	return "/v1/account/tenants/" + workspaceID.String() + "/oauth-clients"
}

func (b *clientsEnv) path() string { return pathOf(b.Fixture.WorkspaceID) }

// send sends a request as the registrar.
func (b *clientsEnv) send(method, path, body string) apitest.Answer {
	b.t.Helper()
	headers := apitest.Bearer(b.token)
	if body != "" {
		headers = append(headers, "Content-Type", "application/json")
	}
	return b.Send(method, path, body, headers...)
}

// fields is a JSON object.
type fields map[string]any

// confidential returns the registration of the spec (4.2) with the members of with replaced. A nil value removes a
// member.
func confidential(with fields) string {
	return object(
		fields{
			"name":                "Donor sync",
			"redirectUris":        []string{"https://sync.example.org/callback"},
			"requiredPermissions": []string{"programmes:read:programmes"},
		},
		with,
	)
}

// connector returns the registration of a connector, with the members of with replaced.
func connector(with fields) string {
	all := fields{"connectorPlatform": "claude", "resource": apitest.MCP}
	maps.Copy(all, with)
	return confidential(all)
}

func object(base, with fields) string {
	maps.Copy(base, with)
	for name, value := range base {
		if value == nil {
			delete(base, name)
		}
	}
	out, _ := json.Marshal(base) // strings and lists of strings always encode
	return string(out)
}

// registered sends a registration that must succeed.
func (b *clientsEnv) registered(body string) apitest.Answer {
	b.t.Helper()
	answer := b.send("POST", b.path(), body)
	if answer.Status != 201 {
		b.t.Fatalf("register: %d %s", answer.Status, answer.Body)
	}
	return answer
}

// refused requires an error in the flat shape of Account.
func (b *clientsEnv) refused(what string, answer apitest.Answer, status int, code string) {
	b.t.Helper()
	if answer.Status != status || answer.Text("error") != code || answer.Text("error_description") == "" ||
		len(answer.Object()) != 2 {
		b.t.Errorf("%s: %d %s, want %d %s", what, answer.Status, answer.Body, status, code)
	}
}

func (b *clientsEnv) forbidden(what string, answer apitest.Answer) {
	b.t.Helper()
	nested, _ := answer.Object()["error"].(map[string]any)
	if answer.Status != 403 || nested["code"] != "FORBIDDEN" {
		b.t.Errorf("%s: %d %s, want 403 FORBIDDEN", what, answer.Status, answer.Body)
	}
}

func (b *clientsEnv) events(action, client string) int {
	b.t.Helper()
	return b.Count(
		`select count(*) from account.audit_events
		where action = $1 and subject = 'client:' || $2 and actor = 'user:' || $3
		and tenant_id = $4 and request_id <> ''`,
		action,
		client,
		b.registrar.String(),
		b.Fixture.WorkspaceID,
	)
}
