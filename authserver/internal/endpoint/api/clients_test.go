package api_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestList_IsNewestFirstAndWithoutSecrets(t *testing.T) {
	t.Parallel()
	b := newClientsEnv(t)
	empty := b.send("GET", b.path(), "")
	if meta, _ := empty.Object()["meta"].(map[string]any); empty.Status != 200 || meta["count"] != float64(0) ||
		len(meta) != 1 {
		t.Errorf("an empty list: %d %s", empty.Status, empty.Body)
	}
	if data, ok := empty.Object()["data"].([]any); !ok || len(data) != 0 {
		t.Errorf("an empty list: %s", empty.Body)
	}
	first := b.registered(confidential(nil)).Text("clientId")
	second := b.registered(connector(nil)).Text("clientId")
	deleted := b.registered(confidential(nil)).Text("clientId")
	b.send("DELETE", b.path()+"/"+deleted, "")
	b.elsewhere()
	b.Service()
	list := b.send("GET", b.path(), "")
	data, _ := list.Object()["data"].([]any)
	if meta, _ := list.Object()["meta"].(map[string]any); list.Status != 200 || meta["count"] != float64(2) ||
		len(data) != 2 ||
		len(list.Object()) != 2 {
		t.Fatalf("%d %s", list.Status, list.Body)
	}
	for i, id := range []string{second, first} {
		one, _ := data[i].(map[string]any)
		if one["clientId"] != id {
			t.Errorf("%d: %v, want %s", i, one["clientId"], id)
		}
		if _, there := one["clientSecret"]; there {
			t.Error("a secret is in the list")
		}
	}
}

// elsewhere registers a client in another workspace.
func (b *clientsEnv) elsewhere() (workspaceID uuid.UUID, client string) {
	b.t.Helper()
	workspaceID = b.Fixture.Workspace("Elsewhere")
	c, _ := b.Fixture.Confidential(perm.ProgrammesRead)
	b.Fixture.Exec(`update account.oauth_clients set tenant_id = $2 where id = $1`, c.ID, workspaceID)
	return workspaceID, c.ID.String()
}

func TestRead_ReturnsStoredClient(t *testing.T) {
	t.Parallel()
	b := newClientsEnv(t)
	registered := b.registered(connector(nil))
	read := b.send("GET", b.path()+"/"+registered.Text("clientId"), "")
	if read.Status != 200 || read.Body != registered.Body {
		t.Errorf("%d %s, registered as %s", read.Status, read.Body, registered.Body)
	}
	withSecret := b.registered(confidential(nil))
	read = b.send("GET", b.path()+"/"+withSecret.Text("clientId"), "")
	if _, there := read.Object()["clientSecret"]; there || len(read.Object()) != len(withSecret.Object())-1 {
		t.Errorf("%s", read.Body)
	}
}

func TestClients_UnknownClientIs404(t *testing.T) {
	t.Parallel()
	b := newClientsEnv(t)
	_, other := b.elsewhere()
	foreignConnector := b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead).ID.String()
	b.Fixture.Exec(
		`update account.oauth_clients set tenant_id = $2 where id = $1`,
		foreignConnector,
		b.Fixture.Workspace("Elsewhere too"),
	)
	service := b.Service().ID.String()
	deleted := b.registered(confidential(nil)).Text("clientId")
	b.send("DELETE", b.path()+"/"+deleted, "")
	for what, id := range map[string]string{
		"unknown":                       uuid.NewString(),
		"no UUID":                       "app",
		"of another workspace":          other,
		"a service":                     service,
		"deleted":                       deleted,
		"another workspace's connector": foreignConnector,
	} {
		for method, path := range map[string]string{"GET": "/" + id, "DELETE": "/" + id, "POST": "/" + id + "/secret"} {
			b.refused(what+" "+method, b.send(method, b.path()+path, ""), 404, "not_found")
		}
	}
	if n := b.Count(`select count(*) from account.oauth_clients where deleted_at is not null`); n != 1 {
		t.Errorf("%d clients are deleted, want 1", n)
	}
}

func TestDelete_RevokesGrants(t *testing.T) {
	t.Parallel()
	b := newClientsEnv(t)
	app := b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	remaining := b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	held, other := b.Connected(app, b.registrar), b.Connected(remaining, b.registrar)
	id := app.ID.String()
	answer := b.send("DELETE", b.path()+"/"+id, "")
	if answer.Status != 204 || answer.Body != "" {
		t.Fatalf("%d %q, want 204 and no body", answer.Status, answer.Body)
	}
	if g := b.Stored(held.Grant); g.State != grant.Revoked || g.Reason != grant.ClientDeleted {
		t.Errorf("its grant is %s (%s)", g.State, g.Reason)
	}
	if g := b.Stored(other.Grant); g.State != grant.Active {
		t.Errorf("another client's grant is %s", g.State)
	}
	if n := b.events(audit.ClientDeleted, id); n != 1 {
		t.Errorf("%d audit events", n)
	}
	if answer := b.Refresh(app, held.Refresh); answer.Text("error") != "invalid_client" {
		t.Errorf("refresh after the deletion: %d %s", answer.Status, answer.Body)
	}
	b.refused("again", b.send("DELETE", b.path()+"/"+id, ""), 404, "not_found")
}

func (b *clientsEnv) works(what string, id, secret string, works bool) {
	b.t.Helper()
	answer := b.PostJSON(
		apitest.TokenPath,
		"client_id", id,
		"client_secret", secret,
		"code", "alm_ac_word",
		"redirect_uri", "https://x.example/",
	)
	if accepted := answer.Text("error") == "invalid_grant"; accepted != works {
		b.t.Errorf("%s: %d %s, want it accepted: %v", what, answer.Status, answer.Text("error"), works)
	}
}

func TestReplaceSecret_OldSecretWorksFor24Hours(t *testing.T) {
	t.Parallel()
	b := newClientsEnv(t)
	registered := b.registered(confidential(nil))
	id, old := registered.Text("clientId"), registered.Text("clientSecret")
	b.works("at first", id, old, true)
	older := ""
	for _, body := range []string{"", "{}", `{"expireOld":false}`} {
		answer := b.send("POST", b.path()+"/"+id+"/secret", body)
		if answer.Status != 200 || answer.Text("clientSecret") == old || answer.Text("clientId") != id ||
			len(answer.Object()) != len(registered.Object()) {
			t.Fatalf("%q: %d, %d members", body, answer.Status, len(answer.Object()))
		}
		b.works("the new one", id, answer.Text("clientSecret"), true)
		b.works("the one before it", id, old, true)
		if older != "" {
			b.works("an older one", id, older, false)
		}
		older, old = old, answer.Text("clientSecret")
	}
	var expires time.Time
	err := b.Fixture.Owner.QueryRow(t.Context(), `select min(expires_at) from account.client_secrets
		where client_id = $1`, id).
		Scan(&expires)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(expires); left > 24*time.Hour || left < 24*time.Hour-time.Minute {
		t.Errorf("the previous secret works for another %v", left)
	}
	if n := b.events(audit.ClientSecretReplaced, id); n != 3 {
		t.Errorf("%d audit events", n)
	}
}

func TestReplaceSecret_ExpireOldEndsOldSecret(t *testing.T) {
	t.Parallel()
	b := newClientsEnv(t)
	registered := b.registered(confidential(nil))
	id := registered.Text("clientId")
	answer := b.send("POST", b.path()+"/"+id+"/secret", `{"expireOld":true}`)
	b.works("the old one", id, registered.Text("clientSecret"), false)
	b.works("the new one", id, answer.Text("clientSecret"), true)
	for what, body := range map[string]string{
		"a text":    `{"expireOld":"true"}`,
		"malformed": "{",
		"a list":    "[]",
		"null":      "null",
		"twice":     `{"expireOld":true,"expireOld":true}`,
	} {
		b.refused(what, b.send("POST", b.path()+"/"+id+"/secret", body), 400, "invalid_client_metadata")
	}
	b.works("after refusals", id, answer.Text("clientSecret"), true)
}

func TestReplaceSecret_ConnectorIsRefused(t *testing.T) {
	t.Parallel()
	b := newClientsEnv(t)
	id := b.registered(connector(nil)).Text("clientId")
	b.refused("a connector", b.send("POST", b.path()+"/"+id+"/secret", ""), 400, "invalid_client_metadata")
	if n := b.Count(`select count(*) from account.client_secrets`); n != 0 {
		t.Error("the connector got a secret")
	}
}

func TestClients_EveryRouteNeedsPermission(t *testing.T) {
	t.Parallel()
	b := newClientsEnv(t)
	id := b.registered(confidential(nil)).Text("clientId")
	reader := b.Fixture.Token(b.registrar, perm.ProgrammesRead)
	for _, route := range []struct{ method, path string }{
		{"POST", ""}, {"GET", ""}, {"GET", "/" + id}, {"DELETE", "/" + id}, {"POST", "/" + id + "/secret"},
	} {
		what := route.method + route.path
		if answer := b.Send(route.method, b.path()+route.path, ""); answer.Status != 401 ||
			answer.Text("message") != "Unauthorized" {
			t.Errorf("%s without bearer: %d %s", what, answer.Status, answer.Body)
		}
		if answer := b.Send(route.method, b.path()+route.path, "", apitest.Bearer("word")...); answer.Status != 403 ||
			answer.Text("message") != "Forbidden" {
			t.Errorf("%s with a bad bearer: %d %s", what, answer.Status, answer.Body)
		}
		b.forbidden(
			what+" without permission",
			b.Send(route.method, b.path()+route.path, "", apitest.Bearer(reader)...),
		)
		workspaceID, _ := b.elsewhere()
		b.forbidden(what+" elsewhere", b.send(route.method, pathOf(workspaceID)+route.path, ""))
	}
	if answer := b.send("GET", b.path()+"/"+id, ""); answer.Status != 200 {
		t.Errorf("the client afterwards: %d", answer.Status)
	}
}

func TestClients_OutageIs503OnEveryRoute(t *testing.T) {
	t.Parallel()
	b := newClientsEnv(t)
	id := b.registered(confidential(nil)).Text("clientId")
	lock, err := b.Fixture.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(t.Context()) }()
	// The registrar is authenticated, and then the query for the clients times out.
	if _, err := lock.Exec(t.Context(), `lock table account.oauth_clients in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	for _, route := range []struct{ method, path, body string }{
		{"POST", "", confidential(nil)},
		{"GET", "", ""},
		{"GET", "/" + id, ""},
		{"DELETE", "/" + id, ""},
		{"POST", "/" + id + "/secret", ""},
	} {
		answer := b.send(route.method, b.path()+route.path, route.body)
		b.refused(route.method+route.path, answer, 503, "temporarily_unavailable")
		if answer.Header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", route.method+route.path)
		}
	}
}
