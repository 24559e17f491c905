package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
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
	} {
		answer := b.ask(b.Fixture.WorkspaceID.String(), headers...)
		b.Wants(what, answer, 401, "Unauthorized")
		const metadata = `resource_metadata="https://api.example.org/.well-known/oauth-protected-resource/v1"`
		b.Contains(what, answer.Header.Get("WWW-Authenticate"), "Bearer ", metadata)
	}
	b.Wants("an unknown workspace without bearer", b.ask(uuid.NewString()), 401, "Unauthorized")
}

func TestAuthorizer_InvalidBearerIs403(t *testing.T) {
	b, foreign := newTestEnv(t), testEnvOf(t, apitest.Own(t))
	held, revoked, ended := b.linked(perm.AccountAPIAccess), b.linked(perm.AccountAPIAccess),
		b.linked(perm.AccountAPIAccess)
	b.Fixture.Exec(`update account.grants set state = 'revoked', revoked_at = now() where id = $1`, revoked.Grant.ID)
	b.Fixture.Exec(`update account.grants set ends_at = now() where id = $1`, ended.Grant.ID)
	mcp := b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	connected := b.Connected(mcp, b.manager)
	_, code := b.Consent(mcp, b.manager)
	spoiled := func(sql string) credential.Secret {
		token := b.Fixture.Token(b.manager, perm.AccountAPIAccess)
		b.Fixture.Exec(sql+` where hash = $1`, credential.Hash(token.Reveal()))
		return token
	}
	for what, token := range map[string]credential.Secret{
		"garbage":          "word",
		"empty":            "",
		"expired PAT":      spoiled(`update account.personal_access_tokens set expires_at = now()`),
		"revoked PAT":      spoiled(`update account.personal_access_tokens set revoked_at = now()`),
		"unknown PAT":      spoiled(`delete from account.personal_access_tokens`),
		"cut PAT":          b.token[:len(b.token)-1],
		"two words":        b.token + " x",
		"cut":              held.Access[:len(held.Access)-2],
		"revoked":          revoked.Access,
		"ended":            ended.Access,
		"for MCP":          connected.Access,
		"refresh token":    connected.Refresh,
		"code":             code,
		"another server's": foreign.linked(perm.AccountAPIAccess).Access,
	} {
		b.Wants(what, b.with(token), 403, "Forbidden")
	}
	b.Wants("two headers", b.send("GET", clients, "", apitest.Bearer(b.token)...), 403, "Forbidden")
	b.Wants("a bad bearer elsewhere", b.ask(uuid.NewString(), apitest.Bearer("word")...), 403, "Forbidden")
	b.Wants("the good one", b.with(b.token), 200, "")
}

func TestAuthorizer_ExpiredAccessTokenIs403(t *testing.T) {
	b := ownTestEnv(t)
	held := b.linked(perm.AccountAPIAccess)
	claims, err := b.Keyring.Public().Verify(held.Access.Reveal(), apitest.Issuer, time.Now())
	b.Must(err)
	b.Wait(time.Until(claims.Expires) - time.Minute)
	b.Wants("a minute before", b.with(held.Access), 200, "")
	b.Wait(2 * time.Minute)
	b.Wants("a minute after", b.with(held.Access), 403, "Forbidden")
}

func TestAuthorizer_AccessTokenThatDiffersFromItsGrantIs403(t *testing.T) {
	b := newTestEnv(t)
	key, err := b.Keyring.Current(t.Context())
	b.Must(err)
	access := b.linked(perm.AccountAPIAccess).Access
	claims, err := b.Keyring.Public().Verify(access.Reveal(), apitest.Issuer, time.Now())
	b.Must(err)
	for what, alter := range map[string]func(*accesstoken.Claims){
		"another user":   func(c *accesstoken.Claims) { c.Subject = uuid.New() },
		"another issuer": func(c *accesstoken.Claims) { c.Issuer = "https://example.org" },
		"another client": func(c *accesstoken.Claims) { c.ClientID = uuid.NewString() },
	} {
		altered := claims
		alter(&altered)
		token, err := accesstoken.Sign(key, altered)
		b.Must(err)
		b.Wants(what, b.with(token), 403, "Forbidden")
	}
}

func TestAuthorizer_TokenKeepsItsScopeWhenGrantWidens(t *testing.T) {
	b := newTestEnv(t)
	held := b.linked(perm.ProgrammesRead)
	b.Fixture.Exec(`update account.grants set permissions = '{account:api:access,programmes:read:programmes}'
		where id = $1`, held.Grant.ID)
	b.forbidden("a token made for reading", noPermission, b.with(held.Access))
}

// This process still holds the removed key; Postgres reports that it was removed.
func TestAuthorizer_TokenOfRemovedKeyIs403(t *testing.T) {
	b := ownTestEnv(t)
	held := b.linked(perm.AccountAPIAccess)
	b.Wants("before", b.with(held.Access), 200, "")
	b.Fixture.Exec(`update account.signing_keys set state = 'removed' where state = 'current'`)
	b.Wants("removed", b.with(held.Access), 403, "Forbidden")
	b.Wants("personal access token", b.with(b.token), 200, "")
}

func TestAuthorizer_DisabledUserIs403(t *testing.T) {
	b := newTestEnv(t)
	b.Fixture.Exec(`update account.users set disabled_at = now() where id = $1`, b.manager)
	b.Wants("disabled", b.with(b.token), 403, "Forbidden")
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
	reader := b.Fixture.Member(perm.ProgrammesRead)
	b.forbidden("the user lacks it", noPermission, b.with(b.Fixture.Token(reader, perm.AccountAPIAccess)))
	b.SetPermissions(b.manager, perm.ProgrammesRead)
	b.forbidden("permission lost now", noPermission, b.with(b.token))
	b.Fixture.Exec(`delete from account.memberships where user_id = $1 and tenant_id = $2`, b.manager,
		b.Fixture.WorkspaceID)
	b.forbidden("no longer a member", noAccess, b.with(b.token))
}

func TestAuthorizer_RefusesConnectorWhileLLMIsOff(t *testing.T) {
	b := newTestEnv(t)
	held := b.Connected(b.Fixture.Connector(apitest.REST, perm.AccountAPIAccess, perm.ProgrammesRead), b.manager)
	b.Fixture.SetLLM(false)
	b.forbidden("LLM integration off", noAccess, b.with(held.Access))
}

func TestAuthorizer_PostgresOutageIs503(t *testing.T) {
	b := ownTestEnv(t)
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
