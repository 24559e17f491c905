package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A testEnv is a workspace with a manager, who has a token for all of the account API and programmes:read:programmes.
type testEnv struct {
	*apitest.Server
	t       *testing.T
	manager uuid.UUID
	token   credential.Secret // of the manager, unless a test changes it
	base    string            // of the workspace's paths
}

var held = []perm.Permission{
	perm.AccountAPIAccess, perm.AccountReadMembers, perm.AccountWriteMembers, perm.ProgrammesRead,
}

var (
	newTestEnv, ownTestEnv = apitest.Envs(testEnvOf)
	inTurn                 = apitest.InTurn(testEnvOf) // for tests that move the clock or cut the database
)

func testEnvOf(t *testing.T, s *apitest.Server) *testEnv {
	t.Helper()
	b := &testEnv{Server: s, t: t, base: baseOf(s.Fixture.WorkspaceID)}
	b.manager = b.Fixture.Member(held...)
	b.token = b.Fixture.Token(b.manager, held...)
	return b
}

func baseOf(workspaceID uuid.UUID) string { return "/v1/account/tenants/" + workspaceID.String() }

// The paths of the lists, from base.
const (
	clients     = "/oauth-clients"
	members     = "/members"
	invitations = "/invitations"
)

// send sends a request with the token to a path from base. A body is sent as JSON.
func (b *testEnv) send(method, path, body string, headers ...string) apitest.Answer {
	b.t.Helper()
	return b.as(b.token, method, path, body, headers...)
}

func (b *testEnv) as(token credential.Secret, method, path, body string, headers ...string) apitest.Answer {
	b.t.Helper()
	headers = append(apitest.Bearer(token), headers...)
	if body != "" {
		headers = append(headers, "Content-Type", "application/json")
	}
	return b.Send(method, b.base+path, body, headers...)
}

// once sends a request with an Idempotency-Key.
func (b *testEnv) once(key, method, path, body string) apitest.Answer {
	b.t.Helper()
	return b.send(method, path, body, "Idempotency-Key", key)
}

// twice does what once does, checks that the same request again gets the same answer, and returns it.
func (b *testEnv) twice(key, method, path, body string) apitest.Answer {
	b.t.Helper()
	first := b.once(key, method, path, body)
	b.repeats(method+" "+path, first, b.once(key, method, path, body))
	return first
}

// repeats checks that again is the stored answer first, marked as a repetition.
func (b *testEnv) repeats(what string, first, again apitest.Answer) {
	b.t.Helper()
	if first.Status/100 != 2 || again.Status != first.Status || again.Body != first.Body ||
		again.Header.Get("Location") != first.Header.Get("Location") ||
		first.Header.Get("Idempotency-Replayed") != "" || again.Header.Get("Idempotency-Replayed") != "true" ||
		again.Header.Get("Cache-Control") != "no-store" {
		b.t.Errorf("%s: want the first answer again\n%s\n%s", what, b.Explain(first), b.Explain(again))
	}
}

// fields is a JSON object.
type fields map[string]any

// confidential returns the registration of the spec (4.2) with the members of with replaced. A nil value removes a
// member.
func confidential(with fields) string {
	return object(fields{
		"name":                "Donor sync",
		"redirectUris":        []string{"https://sync.example.org/callback"},
		"requiredPermissions": []string{"programmes:read:programmes"},
	}, with)
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

// body returns an invitation or, without an address, a change of a member.
func body(email string, permissions ...perm.Permission) string {
	content := fields{"permissions": perm.NewSet(permissions...).Strings()}
	if email != "" {
		content["email"] = email
	}
	return object(content, nil)
}

// registered sends a registration that must succeed.
func (b *testEnv) registered(body string) apitest.Answer {
	b.t.Helper()
	answer := b.send("POST", clients, body)
	if answer.Status != 201 {
		b.t.Fatalf("registration\n%s", b.Explain(answer))
	}
	return answer
}

// wantClients requires a number of clients in the workspace.
func (b *testEnv) wantClients(want int) {
	b.t.Helper()
	b.WantsRows("clients", want, `account.oauth_clients where tenant_id = $1`, b.Fixture.WorkspaceID)
}

// wantSecrets requires a number of secrets of the workspace's clients.
func (b *testEnv) wantSecrets(want int) {
	b.t.Helper()
	b.WantsRows("secrets", want, `account.client_secrets s join account.oauth_clients c on c.id = s.client_id
		where c.tenant_id = $1`, b.Fixture.WorkspaceID)
}

// wantEvents requires audit events of the manager in the workspace, with the id of the request.
func (b *testEnv) wantEvents(want int, action, subject string) {
	b.t.Helper()
	b.WantsRows("events "+action, want, `account.audit_events where action = $1 and subject = $2
		and actor = 'user:' || $3 and tenant_id = $4 and request_id <> ''`, action, subject, b.manager.String(),
		b.Fixture.WorkspaceID)
}

// forbidden requires a 403 of the nested shape, with a message that says what to do.
func (b *testEnv) forbidden(what, words string, answer apitest.Answer) {
	b.t.Helper()
	b.Wants(what, answer, 403, "FORBIDDEN")
	nested, _ := answer.Object()["error"].(map[string]any)
	if !strings.Contains(fmt.Sprint(nested["message"]), words) {
		b.t.Errorf("%s: want %q\n%s", what, words, b.Explain(answer))
	}
}

// listed returns the records of a page, the text of a member of each of them, and the next cursor.
func (b *testEnv) listed(path, member string) (records []map[string]any, texts []string, next string) {
	b.t.Helper()
	answer := b.send("GET", path, "")
	var page struct {
		Data []map[string]any
		Meta map[string]any
	}
	if err := json.Unmarshal([]byte(answer.Body), &page); err != nil || answer.Status != 200 || page.Data == nil ||
		page.Meta["count"] != float64(len(page.Data)) || len(answer.Object()) != 2 {
		b.t.Fatalf("%s: want a page\n%s", path, b.Explain(answer))
	}
	for _, one := range page.Data {
		texts = append(texts, fmt.Sprint(one[member]))
	}
	next, more := page.Meta["nextCursor"].(string)
	if len(page.Meta) != map[bool]int{true: 2, false: 1}[more] {
		b.t.Errorf("%s: meta\n%s", path, b.Explain(answer))
	}
	return page.Data, texts, next
}
