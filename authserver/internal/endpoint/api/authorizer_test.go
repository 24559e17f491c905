package api_test

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/openapi"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// These tests call the authorizer through the list of clients.
func (b *testEnv) ask(workspace string, headers ...string) apitest.Answer {
	b.t.Helper()
	return b.Send("GET", "/v1/account/tenants/"+workspace+clients, "", headers...)
}

func (b *testEnv) with(token credential.Secret) apitest.Answer {
	b.t.Helper()
	return b.as(token, "GET", clients, "")
}

// linked returns a connection of a new application of the manager.
func (b *testEnv) linked(permissions ...perm.Permission) apitest.Connection {
	b.t.Helper()
	c, secret := b.Fixture.Confidential(permissions...)
	return b.Linked(c, secret, b.manager)
}

// Parts of the message.
const (
	noAccess     = "does not have access to the workspace"
	noPermission = "requires the permission account:api:access"
)

func TestAuthorizer_AcceptsTokensOfBothKinds(t *testing.T) {
	b := newTestEnv(t)
	workspace, access := b.Fixture.WorkspaceID.String(), b.linked(perm.AccountAPIAccess).Access
	b.Wants("personal access token", b.with(b.token), 200, "")
	b.Wants("access token", b.with(access), 200, "")
	b.Wants("scheme in another case", b.ask(workspace, "Authorization", "bEARER "+access.Reveal()), 200, "")
	b.Wants("upper case", b.ask(strings.ToUpper(workspace), apitest.Bearer(access)...), 200, "")
	b.Equal("uses", b.Uses.Seen(b.Fixture.WorkspaceID), 4)
}

func TestAuthorizer_MissingBearerIs401(t *testing.T) {
	b := newTestEnv(t)
	for what, headers := range map[string][]string{
		"no header":       nil,
		"empty":           {"Authorization", ""},
		"Basic":           {"Authorization", "Basic YTpi"},
		"the token alone": {"Authorization", b.token.Reveal()},
		"a cookie":        {"Cookie", "Authorization=Bearer " + b.token.Reveal()},
		"for a proxy":     {"Proxy-Authorization", "Bearer " + b.token.Reveal()},
	} {
		answer := b.ask(b.Fixture.WorkspaceID.String(), headers...)
		b.Wants(what, answer, 401, "Unauthorized")
		const metadata = `resource_metadata="https://api.example.org/.well-known/oauth-protected-resource/v1"`
		b.Contains(what, answer.Header.Get("WWW-Authenticate"), "Bearer ", metadata)
	}
	b.Wants("an unknown workspace without bearer", b.ask(uuid.NewString()), 401, "Unauthorized")
	inQuery := "/v1/account/tenants/" + b.Fixture.WorkspaceID.String() + clients + "?access_token=" + b.token.Reveal()
	b.Wants("in the query", b.Send("GET", inQuery, ""), 401, "Unauthorized")
}

func TestAuthorizer_InvalidBearerIs403(t *testing.T) {
	b := newTestEnv(t)
	held, revoked, ended := b.linked(perm.AccountAPIAccess), b.linked(perm.AccountAPIAccess),
		b.linked(perm.AccountAPIAccess)
	b.Fixture.Exec(`update account.grants set state = 'revoked', revoked_at = now() where id = $1`, revoked.Grant.ID)
	b.Fixture.Exec(`update account.grants set ends_at = now() where id = $1`, ended.Grant.ID)
	moved := b.linked(perm.AccountAPIAccess)
	b.Fixture.Exec(`update account.grants set user_id = $2 where id = $1`, moved.Grant.ID,
		b.Fixture.Member(perm.AccountAPIAccess))
	mcp := b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	connected := b.Connected(mcp, b.manager)
	_, code := b.Consent(mcp, b.manager)
	spoiled := func(sql string) credential.Secret {
		token := b.Fixture.Token(b.manager, perm.AccountAPIAccess)
		b.Fixture.Exec(sql+` where hash = $1`, credential.Hash(token.Reveal()))
		return token
	}
	disabled := b.Fixture.Member(perm.AccountAPIAccess)
	b.Fixture.Exec(`update account.users set disabled_at = now() where id = $1`, disabled)
	for what, token := range map[string]credential.Secret{
		"a disabled user's": b.Fixture.Token(disabled, perm.AccountAPIAccess),
		"garbage":           "word",
		"empty":             "",
		"expired PAT":       spoiled(`update account.personal_access_tokens set expires_at = now()`),
		"revoked PAT":       spoiled(`update account.personal_access_tokens set revoked_at = now()`),
		"unknown PAT":       spoiled(`delete from account.personal_access_tokens`),
		"cut PAT":           b.token[:len(b.token)-1],
		"two words":         b.token + " x",
		"cut":               held.Access[:len(held.Access)-2],
		"revoked":           revoked.Access,
		"ended":             ended.Access,
		"for MCP":           connected.Access,
		"refresh token":     connected.Refresh,
		"code":              code,
		"another user's":    moved.Access, // standing.TestBacks_RefusesEachClaimOfAnotherGrant has the others
	} {
		b.Wants(what, b.with(token), 403, "Forbidden")
	}
	b.Wants("two headers", b.send("GET", clients, "", apitest.Bearer(b.token)...), 403, "Forbidden")
	b.Wants("a bad bearer elsewhere", b.ask(uuid.NewString(), apitest.Bearer("word")...), 403, "Forbidden")
	b.Wants("the good one", b.with(b.token), 200, "")
}

func TestAuthorizer_ExpiredAccessTokenIs403(t *testing.T) {
	b := inTurn(t)
	held := b.linked(perm.AccountAPIAccess)
	claims, err := b.Keyring.Public().Verify(held.Access.Reveal(), apitest.Issuer, time.Now())
	b.Must(err)
	b.Wait(time.Until(claims.Expires) - time.Minute)
	b.Wants("a minute before", b.with(held.Access), 200, "")
	b.Wait(2 * time.Minute)
	b.Wants("a minute after", b.with(held.Access), 403, "Forbidden")
}

func TestAuthorizer_MissingAccessIsFORBIDDEN(t *testing.T) {
	b := newTestEnv(t)
	bearer, other := apitest.Bearer(b.token), b.Fixture.Workspace("Elsewhere")
	b.forbidden("another workspace", noAccess, b.ask(other.String(), bearer...))
	b.Fixture.Join(other, b.manager, perm.AccountAPIAccess)
	b.forbidden("another workspace of the user", noAccess, b.ask(other.String(), bearer...))
	b.forbidden("unknown workspace", noAccess, b.ask(uuid.NewString(), bearer...))
	b.forbidden("no UUID", noAccess, b.ask("main", bearer...))
	spelled := strings.ReplaceAll(b.Fixture.WorkspaceID.String(), "-", "")
	b.forbidden("a UUID in another spelling", noAccess, b.ask(spelled, bearer...))
	b.forbidden("outside the token", noPermission, b.with(b.Fixture.Token(b.manager, perm.ProgrammesRead)))
	widened := b.linked(perm.ProgrammesRead)
	b.Fixture.Exec(`update account.grants set permissions = '{account:api:access,programmes:read:programmes}'
		where id = $1`, widened.Grant.ID)
	b.forbidden("a token from before its grant had more", noPermission, b.with(widened.Access))
	connector := b.Connected(b.Fixture.Connector(apitest.REST, perm.AccountAPIAccess, perm.ProgrammesRead), b.manager)
	b.forbidden("a connector", noPermission, b.with(connector.Access))
	b.Fixture.SetLLM(false)
	b.forbidden("LLM integration off", noAccess, b.with(connector.Access))
	reader := b.Fixture.Member(perm.ProgrammesRead)
	b.forbidden("the user lacks it", noPermission, b.with(b.Fixture.Token(reader, perm.AccountAPIAccess)))
	b.SetPermissions(b.manager, perm.ProgrammesRead)
	b.forbidden("permission lost now", noPermission, b.with(b.token))
	b.Fixture.Exec(`delete from account.memberships where user_id = $1 and tenant_id = $2`, b.manager,
		b.Fixture.WorkspaceID)
	b.forbidden("no longer a member", noAccess, b.with(b.token))
}

func TestAuthorizer_PostgresOutageIs503(t *testing.T) {
	b := inTurn(t)
	access := b.linked(perm.AccountAPIAccess).Access
	restore := b.CutPostgres()
	b.Wants("access token", b.with(access), 503, "temporarily_unavailable")
	b.Wants("personal access token", b.with(b.token), 503, "temporarily_unavailable")
	b.Wants("no bearer", b.ask(b.Fixture.WorkspaceID.String()), 401, "Unauthorized")
	b.Wants("a forged access token", b.with("a.b.c"), 403, "Forbidden")
	b.Wants("members", b.send("GET", members, ""), 503, "temporarily_unavailable")
	restore()
	b.Wants("afterwards", b.with(b.token), 200, "")
}

// The contract's limits for one credential (section 6), at the real routes.
func TestBounds_OneCredentialHas64InFlightAnd8Handled(t *testing.T) {
	b := ownTestEnv(t, func(c *app.Config, _ string) { c.StoreWait = await.Long }) // for the lock
	first := b.send("GET", clients, "")
	b.Wants("the first", first, 200, "")
	b.WantsHeader("the first", first, "RateLimit", `"requests-in-flight";r=63`)
	b.WantsHeader("the first", first, "RateLimit-Policy", `"requests-in-flight";q=64;qu="concurrent-requests"`)
	await.True(t, "the last request arrives before the first has waited too long", func() bool {
		return refusesBeyond64(t, b)
	})
	b.Wants("afterwards", b.send("GET", clients, ""), 200, "")
	other := b.with(b.Fixture.Token(b.manager, perm.AccountAPIAccess))
	b.WantsHeader("another credential", other, "RateLimit", `"requests-in-flight";r=63`)
}

// refusesBeyond64 sends 69 requests, of which the first 64 are held until the others have been refused. It reports
// false if a request was refused because it waited for its turn for too long.
func refusesBeyond64(t *testing.T, b *testEnv) bool {
	t.Helper()
	// Blocks every request that is being handled.
	release := b.Lock("lock table account.oauth_clients in access exclusive mode")
	defer release()
	const allowed, beyond = 64, 5
	answers := make(chan apitest.Answer, allowed+beyond)
	for i := range allowed + beyond {
		method, body := "GET", ""
		if i%2 == 0 {
			method, body = "POST", confidential(nil)
		}
		go func() { answers <- b.send(method, clients, body) }()
	}
	var early []apitest.Answer
	for range beyond {
		early = append(early, <-answers)
	}
	var handled int
	await.True(t, "a request is handled", func() bool { // a refusal can come before the first statement
		handled = b.Count(`select count(*) from ` + testkit.Locks + `
			where relation = 'account.oauth_clients'::regclass and not granted`)
		return handled > 0
	})
	if handled > 8 {
		t.Errorf("%d requests of one credential are handled at once, want 1 to 8", handled)
	}
	release()
	inTime := true
	for range allowed {
		answer := <-answers
		inTime = inTime && !strings.Contains(answer.Body, "take too long")
		if inTime && (answer.Status == 429 || answer.Status >= 500) {
			t.Errorf("one of the first %d: %d %s", allowed, answer.Status, answer.Body)
		}
	}
	for _, answer := range early {
		if inTime = inTime && !strings.Contains(answer.Body, "take too long"); !inTime {
			return false
		}
		b.Wants("beyond 64", answer, 429, "RATE_LIMITED")
		b.WantsHeader("beyond 64", answer, "Retry-After", "1")
		b.WantsHeader("beyond 64", answer, "RateLimit", `"requests-in-flight";r=0`)
	}
	return true
}

// Lists of applications are read whole, so their number is limited.
func TestBounds_WorkspaceHas1000Applications(t *testing.T) {
	b := ownTestEnv(t, func(c *app.Config, _ string) { c.StoreWait = await.Long }) // for the lock
	b.Fixture.Exec(`insert into account.oauth_clients (id, kind, tenant_id, name, redirect_uris, required_permissions,
			token_endpoint_auth_method)
		select gen_random_uuid(), 'confidential', $1, 'Rota', '{https://rota.example/cb}', '{}', 'client_secret_post'
		from generate_series(1, $2)`, b.Fixture.WorkspaceID, client.MaxInWorkspace-1)
	// Blocks each registration after its client is inserted.
	release := b.Lock("lock table account.client_secrets in access exclusive mode")
	statuses := make([]int, 4)
	var all sync.WaitGroup
	for i := range statuses { // the changes of one user wait for each other
		user := b.Fixture.Member(perm.AccountAPIAccess, perm.ProgrammesRead)
		token := b.Fixture.Token(user, perm.AccountAPIAccess, perm.ProgrammesRead)
		all.Go(func() { statuses[i] = b.as(token, "POST", clients, confidential(nil)).Status })
	}
	await.True(t, "all registrations wait", func() bool {
		return b.Count(`select count(*) from `+testkit.Locks+`
			where relation = 'account.client_secrets'::regclass and not granted`) == len(statuses)
	})
	release()
	all.Wait()
	if slices.Sort(statuses); !slices.Equal(statuses, []int{201, 409, 409, 409}) {
		t.Fatalf("the last one, requested four times at once: status %d", statuses)
	}
	if beyond := b.send("POST", clients, confidential(nil)); beyond.Status != 409 ||
		!strings.Contains(string(beyond.Body), "1,000 applications") {
		t.Errorf("one more: status %d", beyond.Status)
	}
	b.Fixture.Exec(`update account.oauth_clients set deleted_at = now()
		where id = (select id from account.oauth_clients where tenant_id = $1 limit 1)`, b.Fixture.WorkspaceID)
	b.Wants("after one was deleted", b.send("POST", clients, confidential(nil)), 201, "")
}

// Each route demands the permissions that its description says, of the credential and of its user, and no other.
func TestRoutes_DemandDescribedPermissions(t *testing.T) {
	b := newTestEnv(t)
	document, err := openapi.New(apitest.Issuer)
	b.Must(err)
	checked := 0
	for _, o := range document.Operations() {
		needs, called := o.Permissions()
		if o.Service != openapi.Authserver || !called {
			continue
		}
		checked++
		path := regexp.MustCompile(`\{\w+\}`).ReplaceAllStringFunc(o.Path, func(name string) string {
			if name == "{tenantId}" {
				return b.Fixture.WorkspaceID.String()
			}
			return uuid.NewString()
		})
		path = path[len(b.base):]
		for _, p := range needs {
			token := b.Fixture.Token(b.manager, perm.FullSet().Without(perm.NewSet(p))...)
			b.Wants(o.Text("operationId")+" without "+string(p), b.as(token, o.Method, path, "{}"), 403, "FORBIDDEN")
		}
		answer := b.as(b.Fixture.Token(b.manager, needs...), o.Method, path, "{}")
		if answer.Status == 401 || answer.Status == 403 {
			t.Errorf("%s with %s\n%s", o.Text("operationId"), needs.Scope(), b.Explain(answer))
		}
	}
	if checked < 20 {
		t.Errorf("only %d operations", checked)
	}
}
