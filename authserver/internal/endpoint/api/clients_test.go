package api_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// The first row of the table in section 5 of the contract, at the real routes.
func TestRoutes_UnknownPathsAndMethodsComeBeforeAuthentication(t *testing.T) {
	b := newTestEnv(t)
	all := b.base + clients
	one := all + "/" + uuid.NewString()
	for _, c := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", all + "/", 404, ""},
		{"POST", one + "/secrets", 404, ""},
		{"GET", b.base, 404, ""},
		{"GET", "/v1/account/tenants//oauth-clients", 404, ""},
		{"GET", strings.Replace(all, "/v1/", "/V1/", 1), 404, ""},
		{"PUT", all, 405, "GET, HEAD, POST"},
		{"DELETE", all, 405, "GET, HEAD, POST"},
		{"POST", one, 405, "DELETE, GET, HEAD"},
		{"PATCH", one, 405, "DELETE, GET, HEAD"},
		{"GET", one + "/secret", 405, "POST"},
		{"GET", apitest.TokenPath, 405, "POST"},
		{"PUT", apitest.RevokePath, 405, "POST"},
		{"GET", apitest.IntrospectPath, 405, "POST"},
	} {
		for _, headers := range [][]string{nil, apitest.Bearer("word"), apitest.Bearer(b.token)} {
			answer := b.Send(c.method, c.path, "", headers...)
			if allow := answer.Header.Get("Allow"); answer.Status != c.status || allow != c.allow {
				t.Errorf("want %d, Allow %q\n%s", c.status, c.allow, b.Explain(answer))
			}
		}
	}
}

// elsewhere registers a client of a kind in another workspace.
func (b *testEnv) elsewhere(connector bool) (workspaceID uuid.UUID, client string) {
	b.t.Helper()
	workspaceID = b.Fixture.Workspace("Elsewhere")
	c, _ := b.Fixture.Confidential(perm.ProgrammesRead)
	if connector {
		c = b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	}
	b.Fixture.Exec(`update account.oauth_clients set tenant_id = $2 where id = $1`, c.ID, workspaceID)
	return workspaceID, c.ID.String()
}

func TestList_IsNewestFirstAndWithoutSecrets(t *testing.T) {
	b := newTestEnv(t)
	_, empty, _ := b.listed(clients, "clientId")
	b.Equal("an empty list", len(empty), 0)
	first, second := b.registered(confidential(nil)), b.registered(connector(nil))
	deleted := b.registered(confidential(nil)).Text("clientId")
	b.send("DELETE", clients+"/"+deleted, "")
	b.elsewhere(false)
	b.Service()
	records, ids, _ := b.listed(clients, "clientId")
	b.Equal("clients", ids, []string{second.Text("clientId"), first.Text("clientId")})
	for _, one := range records {
		b.Equal("a secret in the list", one["clientSecret"], nil)
	}
	read := b.send("GET", clients+"/"+second.Text("clientId"), "")
	if read.Status != 200 || read.Body != second.Body {
		t.Errorf("registered as %s\n%s", second.Body, b.Explain(read))
	}
	read = b.send("GET", clients+"/"+first.Text("clientId"), "")
	if len(read.Object()) != len(first.Object())-1 || read.Text("clientSecret") != "" {
		t.Errorf("want all but the secret\n%s", b.Explain(read))
	}
}

func TestList_Pages(t *testing.T) {
	b := newTestEnv(t)
	var want, got []string
	for _, name := range []string{"One", "Two", "Three", "Four", "Five"} {
		b.registered(confidential(fields{"name": name}))
		want = append([]string{name}, want...)
	}
	query, next := "?limit=2", ""
	for range 3 {
		var names []string
		_, names, next = b.listed(clients+query, "name")
		got = append(got, names...)
		// A client that is registered meanwhile is newer than the position, so it moves no other.
		b.registered(confidential(fields{"name": "Later"}))
		query = "?limit=2&cursor=" + next
	}
	if !slices.Equal(got, want) || next != "" {
		t.Errorf("%v, want %v, and no cursor", got, want)
	}
	_, _, next = b.listed(clients+"?limit=1", "name")
	for _, query := range []string{
		"limit=0", "limit=-1", "limit=x", "limit=", "cursor=", "cursor=" + next + "A", "fields=clientSecret",
		"fields=name,secret",
	} {
		b.Wants(query, b.send("GET", clients+"?"+query, ""), 400, "invalid_request")
	}
	few := b.send("GET", clients+"?limit=100000&fields=name,kind", "")
	if few.Status != 200 || !strings.HasPrefix(few.Body, `{"data":[{"kind":"confidential","name":"Later"},`) {
		t.Error(b.Explain(few))
	}
}

func TestClients_UnknownClientIs404(t *testing.T) {
	b := newTestEnv(t)
	_, other := b.elsewhere(false)
	_, foreign := b.elsewhere(true)
	deleted, service := b.registered(confidential(nil)).Text("clientId"), b.Service().ID.String()
	b.send("DELETE", clients+"/"+deleted, "")
	for what, id := range map[string]string{
		"unknown":                       uuid.NewString(),
		"no UUID":                       "app",
		"of another workspace":          other,
		"a service":                     service,
		"deleted":                       deleted,
		"another workspace's connector": foreign,
	} {
		for method, path := range map[string]string{"GET": "", "DELETE": "", "POST": "/secret"} {
			b.Wants(what+" "+method, b.send(method, clients+"/"+id+path, ""), 404, "not_found")
		}
	}
	b.WantsRows("others deleted", 0, `account.oauth_clients where deleted_at is not null and id::text in ($1, $2, $3)`,
		other, foreign, service)
}

func TestDelete_RevokesGrants(t *testing.T) {
	b := newTestEnv(t)
	app := b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	remaining := b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	held, other := b.Connected(app, b.manager), b.Connected(remaining, b.manager)
	linked := b.linked(perm.ProgrammesRead)
	id := app.ID.String()
	answer := b.send("DELETE", clients+"/"+id, "")
	if answer.Status != 204 || answer.Body != "" {
		t.Fatalf("want 204 and no body\n%s", b.Explain(answer))
	}
	b.WantsGrant("its grant", held.Grant, grant.Revoked, grant.ClientDeleted)
	b.WantsGrant("a confidential client's grant before", linked.Grant, grant.Active, "")
	b.Wants("DELETE", b.send("DELETE", clients+"/"+linked.Grant.ClientID.String(), ""), 204, "")
	b.WantsGrant("a confidential client's grant", linked.Grant, grant.Revoked, grant.ClientDeleted)
	b.WantsGrant("another client's grant", other.Grant, grant.Active, "")
	b.wantEvents(1, audit.ClientDeleted, "client:"+id)
	b.Wants("refresh after the deletion", b.Refresh(app, held.Refresh), 400, "invalid_client")
}

// works requires that the token endpoint accepts a secret, or does not.
func (b *testEnv) works(what, id, secret string, works bool) {
	b.t.Helper()
	answer := b.PostJSON(apitest.TokenPath, "client_id", id, "client_secret", secret, "code", "alm_ac_word",
		"redirect_uri", "https://x.example/")
	b.Wants(what, answer, 400, map[bool]string{true: "invalid_grant", false: "invalid_client"}[works])
}

func TestReplaceSecret_OldSecretWorksFor24Hours(t *testing.T) {
	b := newTestEnv(t)
	registered := b.registered(confidential(nil))
	id, old, older := registered.Text("clientId"), registered.Text("clientSecret"), ""
	b.works("at first", id, old, true)
	for _, body := range []string{"", "{}", `{"expireOld":false}`} {
		answer := b.send("POST", clients+"/"+id+"/secret", body)
		if answer.Status != 200 || answer.Text("clientSecret") == old || answer.Text("clientId") != id ||
			len(answer.Object()) != len(registered.Object()) {
			t.Fatalf("%q\n%s", body, b.Explain(answer))
		}
		b.WantsHeader("a new secret", answer, "Cache-Control", "no-store")
		b.works("the new one", id, answer.Text("clientSecret"), true)
		b.works("the one before it", id, old, true)
		if older != "" {
			b.works("an older one", id, older, false)
		}
		older, old = old, answer.Text("clientSecret")
	}
	var expires, replaced time.Time
	b.Must(b.Fixture.Owner.QueryRow(t.Context(), `select min(expires_at), max(created_at) from account.client_secrets
		where client_id = $1`, id).Scan(&expires, &replaced))
	if left := expires.Sub(replaced); (left - 24*time.Hour).Abs() > time.Second {
		t.Errorf("the previous secret works for another %v", left)
	}
	b.wantEvents(3, audit.ClientSecretReplaced, "client:"+id)
}

func TestReplaceSecret_ExpireOldEndsOldSecret(t *testing.T) {
	b := newTestEnv(t)
	registered := b.registered(confidential(nil))
	id := registered.Text("clientId")
	path := clients + "/" + id + "/secret"
	answer := b.send("POST", path, `{"expireOld":true}`)
	b.works("the old one", id, registered.Text("clientSecret"), false)
	b.works("the new one", id, answer.Text("clientSecret"), true)
	for _, body := range []string{`{"expireOld":"true"}`, "{", "[]", "null", `{"expireOld":true,"expireOld":true}`} {
		b.Wants(body, b.send("POST", path, body), 400, "invalid_client_metadata")
	}
	b.works("after refusals", id, answer.Text("clientSecret"), true)
	b.Wants("deletion", b.send("DELETE", clients+"/"+id, ""), 204, "")
	b.works("after the deletion", id, answer.Text("clientSecret"), false)
	public := b.registered(connector(nil)).Text("clientId")
	b.Wants("a connector", b.send("POST", clients+"/"+public+"/secret", ""), 400, "invalid_client_metadata")
	b.WantsRows("the connector's secrets", 0, `account.client_secrets where client_id = $1`, public)
}

// routes are the requests about a client.
func routes(id string) []struct{ method, path, body string } {
	return []struct{ method, path, body string }{
		{"POST", clients, confidential(nil)},
		{"GET", clients, ""},
		{"GET", clients + "/" + id, ""},
		{"POST", clients + "/" + id + "/secret", ""},
		{"DELETE", clients + "/" + id, ""},
	}
}

func TestClients_EveryRouteNeedsPermission(t *testing.T) {
	b := newTestEnv(t)
	id := b.registered(confidential(nil)).Text("clientId")
	reader := b.Fixture.Token(b.manager, perm.ProgrammesRead)
	elsewhere, _ := b.elsewhere(false)
	for _, route := range routes(id) {
		b.Wants("without bearer", b.Send(route.method, b.base+route.path, "{"), 401, "Unauthorized")
		b.Wants("a bad bearer", b.as("word", route.method, route.path, ""), 403, "Forbidden")
		b.Wants("without permission", b.as(reader, route.method, route.path, "{"), 403, "FORBIDDEN")
		b.Wants("elsewhere", b.Send(route.method, baseOf(elsewhere)+route.path, "", apitest.Bearer(b.token)...), 403,
			"FORBIDDEN")
	}
	b.Wants("the client afterwards", b.send("GET", clients+"/"+id, ""), 200, "")
}

// The manager is authenticated, and then the query for the clients times out.
func TestClients_OutageIs503OnEveryRoute(t *testing.T) {
	b := ownTestEnv(t, apitest.Impatient)
	c, _ := b.Fixture.Confidential(perm.ProgrammesRead)
	b.Lock(`lock table account.oauth_clients in access exclusive mode`)
	var all sync.WaitGroup
	for _, route := range routes(c.ID.String()) {
		all.Go(func() {
			answer := b.send(route.method, route.path, route.body)
			b.Wants(route.method+route.path, answer, 503, "temporarily_unavailable")
		})
	}
	all.Wait()
}

// A repeated write takes effect once, and its secret or link is stored sealed.
// e2e.TestRepeat_AccountWritesTakeEffectOnce has the keys and bodies that are refused.
func TestRepeat_WriteTakesEffectOnce(t *testing.T) {
	b := newTestEnv(t)
	first := b.twice("a", "POST", clients, confidential(nil))
	one := clients + "/" + first.Text("clientId")
	if secret := b.twice("a", "POST", one+"/secret", ""); secret.Text("clientSecret") == first.Text("clientSecret") {
		t.Error("the secret was not replaced")
	}
	b.wantSecrets(2)
	b.Wants("another body", b.once("a", "POST", clients, confidential(fields{"name": "Other"})), 409, "conflict")
	b.twice("a", "DELETE", one, "")
	b.wantClients(1)
	member := members + "/" + b.Fixture.Member(perm.ProgrammesRead, perm.ProgrammesWrite).String()
	invitation := b.twice("b", "POST", invitations, body(person(), perm.ProgrammesRead))
	b.Contains("the invitation", invitation.Body, "token=")
	b.WantsRows("secrets and links in the clear", 0, `account.idempotency_keys
		where position('alm_cs_'::bytea in body) > 0 or position('token='::bytea in body) > 0`)
	b.twice("b", "PATCH", member, body("", perm.ProgrammesRead))
	b.twice("b", "DELETE", member, "")
	b.twice("b", "DELETE", invitations+"/"+invitation.Text("id"), "")
	for _, action := range []string{
		audit.MemberPermissionsChanged, audit.MemberRemoved, audit.InvitationCreated, audit.InvitationWithdrawn,
	} {
		b.WantsRows(action, 1, `account.audit_events where action = $1 and tenant_id = $2`, action,
			b.Fixture.WorkspaceID)
	}
}

// A stored answer is repeated to a caller who may still do what it needed, and one with a secret to its credential
// alone.
func TestRepeat_NeedsPermissionAndForSecretsTheCredential(t *testing.T) {
	b := newTestEnv(t)
	mine, registration := b.token, confidential(nil)
	first := b.once("a", "POST", clients, registration)
	one := clients + "/" + first.Text("clientId") + "/secret"
	secret := b.once("a", "POST", one, "")
	public := b.once("b", "POST", clients, connector(nil))

	b.token = b.Fixture.Token(b.manager, perm.AccountAPIAccess)
	b.Wants("registration, a weaker token", b.once("a", "POST", clients, registration), 403, "FORBIDDEN")
	b.Wants("connector, a weaker token", b.once("b", "POST", clients, connector(nil)), 403, "FORBIDDEN")
	b.Wants("secret, a weaker token", b.once("a", "POST", one, ""), 409, "conflict")
	b.token = b.Fixture.Token(b.manager, perm.AccountAPIAccess, perm.ProgrammesRead)
	b.Wants("registration, another token", b.once("a", "POST", clients, registration), 409, "conflict")
	b.Wants("secret, another token", b.once("a", "POST", one, ""), 409, "conflict")
	b.repeats("no secret, another token", public, b.once("b", "POST", clients, connector(nil)))

	b.token = mine
	b.repeats("the same token", first, b.once("a", "POST", clients, registration))
	b.repeats("the same token's secret", secret, b.once("a", "POST", one, ""))
	b.Fixture.Exec(`update account.idempotency_keys set needs = null, credential_id = null where tenant_id = $1`,
		b.Fixture.WorkspaceID) // as the former release
	b.repeats("an answer of the former release", first, b.once("a", "POST", clients, registration))
	b.Wants("another key", b.once("c", "POST", clients, registration), 201, "")
	b.SetPermissions(b.manager, perm.AccountAPIAccess)
	b.Wants("after the permission was lost", b.once("c", "POST", clients, registration), 403, "FORBIDDEN")
	b.wantClients(3)
}

// Only one of several concurrent requests with the same key takes effect. All get its answer.
func TestRepeat_ConcurrentRequestsGetOneAnswer(t *testing.T) {
	b := newTestEnv(t)
	answers := make([]apitest.Answer, 8)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i] = b.once("a", "POST", clients, confidential(nil)) })
	}
	all.Wait()
	for _, a := range answers {
		if a.Status != 201 || a.Body != answers[0].Body {
			t.Errorf("want the answer of the first\n%s", b.Explain(a))
		}
	}
	b.wantClients(1)
}
