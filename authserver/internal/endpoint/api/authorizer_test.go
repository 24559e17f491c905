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

// A bearerEnv is a test server with a user who may manage the workspace's account. The tests call the authorizer
// through the list of clients.
type bearerEnv struct {
	*apitest.Server
	t    *testing.T
	user uuid.UUID
}

func newBearerEnv(t *testing.T) *bearerEnv {
	t.Helper()
	b := &bearerEnv{Server: apitest.Own(t), t: t}
	b.user = b.Fixture.Member(perm.AccountAPIAccess, perm.ProgrammesRead)
	return b
}

func (b *bearerEnv) ask(workspace string, headers ...string) apitest.Answer {
	b.t.Helper()
	return b.Send("GET", "/v1/account/tenants/"+workspace+"/oauth-clients", "", headers...)
}

func (b *bearerEnv) with(token credential.Secret) apitest.Answer {
	b.t.Helper()
	return b.ask(b.Fixture.WorkspaceID.String(), apitest.Bearer(token)...)
}

func (b *bearerEnv) passes(what string, answer apitest.Answer) {
	b.t.Helper()
	if answer.Status != 200 {
		b.t.Errorf("%s: %d %s, want 200", what, answer.Status, answer.Body)
	}
}

// gateway checks for the shape of the Account authorizer's failures (spec 7.1).
func (b *bearerEnv) gateway(what string, answer apitest.Answer, status int, message string) {
	b.t.Helper()
	if answer.Status != status || strings.TrimSpace(answer.Body) != `{"message":"`+message+`"}` {
		b.t.Errorf("%s: %d %s, want %d %s", what, answer.Status, answer.Body, status, message)
	}
}

// Parts of the message.
const (
	noAccess     = "does not have access to the workspace"
	noPermission = "requires the permission account:api:access"
)

// forbidden checks for the nested shape, with a message that says what to do.
func (b *bearerEnv) forbidden(what, words string, answer apitest.Answer) {
	b.t.Helper()
	nested, _ := answer.Object()["error"].(map[string]any)
	message, _ := nested["message"].(string)
	if answer.Status != 403 || nested["code"] != "FORBIDDEN" || !strings.Contains(message, words) ||
		len(answer.Object()) != 1 ||
		len(nested) != 2 {
		b.t.Errorf("%s: %d %s, want 403 FORBIDDEN", what, answer.Status, answer.Body)
	}
}

func TestAuthorizer_AcceptsTokensOfBothKinds(t *testing.T) {
	b := newBearerEnv(t)
	c, secret := b.Fixture.Confidential(perm.AccountAPIAccess)
	access := b.Linked(c, secret, b.user).Access
	b.passes("personal access token", b.with(b.Fixture.Token(b.user, perm.AccountAPIAccess)))
	b.passes("access token", b.with(access))
	b.passes(
		"scheme in another case",
		b.ask(b.Fixture.WorkspaceID.String(), "Authorization", "bEARER "+access.Reveal()),
	)
	b.passes(
		"workspace in upper case",
		b.ask(strings.ToUpper(b.Fixture.WorkspaceID.String()), apitest.Bearer(access)...),
	)
	if b.Uses.Seen() != 4 {
		t.Errorf("%d uses were recorded, want 4", b.Uses.Seen())
	}
}

func TestAuthorizer_MissingBearerIs401(t *testing.T) {
	b := newBearerEnv(t)
	workspace := b.Fixture.WorkspaceID.String()
	for what, headers := range map[string][]string{
		"no header":       nil,
		"empty":           {"Authorization", ""},
		"Basic":           {"Authorization", "Basic YTpi"},
		"the token alone": {"Authorization", b.Fixture.Token(b.user).Reveal()},
	} {
		answer := b.ask(workspace, headers...)
		b.gateway(what, answer, 401, "Unauthorized")
		challenge := answer.Header.Get("WWW-Authenticate")
		if !strings.HasPrefix(challenge, "Bearer ") ||
			!strings.Contains(
				challenge,
				`resource_metadata="https://api.example.org/.well-known/oauth-protected-resource/v1"`,
			) {
			t.Errorf("%s: challenge %q", what, challenge)
		}
	}
	b.gateway("an unknown workspace without bearer", b.ask(uuid.NewString()), 401, "Unauthorized")
}

func TestAuthorizer_InvalidBearerIs403(t *testing.T) {
	b := newBearerEnv(t)
	c, secret := b.Fixture.Confidential(perm.AccountAPIAccess)
	held := b.Linked(c, secret, b.user)
	revoked := b.Linked(c, secret, b.user)
	b.Fixture.Exec(`update account.grants set state = 'revoked', revoked_at = now() where id = $1`, revoked.Grant.ID)
	mcp := b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	connected := b.Connected(mcp, b.user)
	_, code := b.Consent(c, b.user)
	expiredPAT := b.Fixture.Token(b.user, perm.AccountAPIAccess)
	revokedPAT := b.Fixture.Token(b.user, perm.AccountAPIAccess)
	b.Fixture.Exec(
		`update account.personal_access_tokens set expires_at = now() where hash = $1`,
		credential.Hash(expiredPAT.Reveal()),
	)
	b.Fixture.Exec(
		`update account.personal_access_tokens set revoked_at = now() where hash = $1`,
		credential.Hash(revokedPAT.Reveal()),
	)
	unknownPAT := b.Fixture.Token(b.user, perm.AccountAPIAccess)
	b.Fixture.Exec(`delete from account.personal_access_tokens where hash = $1`, credential.Hash(unknownPAT.Reveal()))
	otherServer := apitest.Own(t)
	app, appSecret := otherServer.Fixture.Confidential(perm.AccountAPIAccess)
	foreignToken := otherServer.Linked(app, appSecret, otherServer.Fixture.Member(perm.AccountAPIAccess)).Access
	good := b.Fixture.Token(b.user, perm.AccountAPIAccess)
	for what, token := range map[string]credential.Secret{
		"garbage":          "word",
		"empty":            "",
		"expired PAT":      expiredPAT,
		"revoked PAT":      revokedPAT,
		"unknown PAT":      unknownPAT,
		"cut PAT":          good[:len(good)-1],
		"two words":        good + " x",
		"cut":              held.Access[:len(held.Access)-2],
		"revoked":          revoked.Access,
		"for MCP":          connected.Access,
		"refresh token":    connected.Refresh,
		"code":             code,
		"another server's": foreignToken,
	} {
		b.gateway(what, b.with(token), 403, "Forbidden")
	}
	two := append(apitest.Bearer(good), apitest.Bearer(good)...)
	b.gateway("two headers", b.ask(b.Fixture.WorkspaceID.String(), two...), 403, "Forbidden")
	b.gateway(
		"an unknown workspace with a bad bearer",
		b.ask(uuid.NewString(), apitest.Bearer("word")...),
		403,
		"Forbidden",
	)
	b.passes("the good one", b.with(good))
}

func TestAuthorizer_ExpiredAccessTokenIs403(t *testing.T) {
	b := newBearerEnv(t)
	c, secret := b.Fixture.Confidential(perm.AccountAPIAccess)
	held := b.Linked(c, secret, b.user)
	b.Wait(90*24*time.Hour - time.Minute)
	b.passes("a minute before", b.with(held.Access))
	b.Wait(2 * time.Minute)
	b.gateway("a minute after", b.with(held.Access), 403, "Forbidden")
}

func TestAuthorizer_EndedGrantIs403(t *testing.T) {
	b := newBearerEnv(t)
	c, secret := b.Fixture.Confidential(perm.AccountAPIAccess)
	held := b.Linked(c, secret, b.user)
	b.Fixture.Exec(`update account.grants set ends_at = now()`)
	b.gateway("ended", b.with(held.Access), 403, "Forbidden")
}

func TestAuthorizer_AccessTokenThatDiffersFromItsGrantIs403(t *testing.T) {
	b := newBearerEnv(t)
	c, secret := b.Fixture.Confidential(perm.AccountAPIAccess)
	held := b.Linked(c, secret, b.user)
	key, err := b.Keyring.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	claims, err := b.Keyring.Public().Verify(held.Access.Reveal(), apitest.Issuer, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for what, alter := range map[string]func(*accesstoken.Claims){
		"another user":   func(c *accesstoken.Claims) { c.Subject = uuid.New() },
		"another issuer": func(c *accesstoken.Claims) { c.Issuer = "https://example.org" },
		"another client": func(c *accesstoken.Claims) { c.ClientID = uuid.NewString() },
	} {
		altered := claims
		alter(&altered)
		token, err := accesstoken.Sign(key, altered)
		if err != nil {
			t.Fatal(err)
		}
		b.gateway(what, b.with(token), 403, "Forbidden")
	}
}

func TestAuthorizer_TokenKeepsItsScopeWhenGrantWidens(t *testing.T) {
	b := newBearerEnv(t)
	c, secret := b.Fixture.Confidential(perm.ProgrammesRead)
	held := b.Linked(c, secret, b.user)
	b.Fixture.Exec(`update account.grants set permissions = '{account:api:access,programmes:read:programmes}'`)
	b.forbidden("a token made for reading", noPermission, b.with(held.Access))
}

// This process still holds the removed key; Postgres reports that it was removed.
func TestAuthorizer_TokenOfRemovedKeyIs403(t *testing.T) {
	b := newBearerEnv(t)
	c, secret := b.Fixture.Confidential(perm.AccountAPIAccess)
	held := b.Linked(c, secret, b.user)
	b.passes("before", b.with(held.Access))
	b.Fixture.Exec(`update account.signing_keys set state = 'removed' where state = 'current'`)
	b.gateway("removed", b.with(held.Access), 403, "Forbidden")
	b.passes("personal access token", b.with(b.Fixture.Token(b.user, perm.AccountAPIAccess)))
}

func TestAuthorizer_DisabledUserIs403(t *testing.T) {
	b := newBearerEnv(t)
	token := b.Fixture.Token(b.user, perm.AccountAPIAccess)
	b.Fixture.Exec(`update account.users set disabled_at = now() where id = $1`, b.user)
	b.gateway("disabled", b.with(token), 403, "Forbidden")
}

func TestAuthorizer_MissingAccessIsFORBIDDEN(t *testing.T) {
	b := newBearerEnv(t)
	token := b.Fixture.Token(b.user, perm.AccountAPIAccess)
	other := b.Fixture.Workspace("Elsewhere")
	bearer := apitest.Bearer(token)
	b.forbidden("another workspace", noAccess, b.ask(other.String(), bearer...))
	b.Fixture.Join(other, b.user, perm.AccountAPIAccess)
	b.forbidden(
		"a token of another workspace, though the user is a member of both",
		noAccess,
		b.ask(other.String(), bearer...),
	)
	b.forbidden("unknown workspace", noAccess, b.ask(uuid.NewString(), bearer...))
	b.forbidden("no UUID", noAccess, b.ask("main", bearer...))
	b.forbidden(
		"a UUID in another spelling",
		noAccess,
		b.ask(strings.ReplaceAll(b.Fixture.WorkspaceID.String(), "-", ""), bearer...),
	)
	b.forbidden("permission outside the token", noPermission, b.with(b.Fixture.Token(b.user, perm.ProgrammesRead)))
	reader := b.Fixture.Member(perm.ProgrammesRead)
	b.forbidden("permission that the user lacks", noPermission, b.with(b.Fixture.Token(reader, perm.AccountAPIAccess)))
	b.Fixture.Exec(
		`update account.memberships set permissions = '{programmes:read:programmes}' where user_id = $1`,
		b.user,
	)
	b.forbidden("permission lost now", noPermission, b.with(token))
	b.Fixture.Exec(
		`delete from account.memberships where user_id = $1 and tenant_id = $2`,
		b.user,
		b.Fixture.WorkspaceID,
	)
	b.forbidden("no longer a member", noAccess, b.with(token))
}

func TestAuthorizer_RefusesConnectorWhileLLMIsOff(t *testing.T) {
	b := newBearerEnv(t)
	held := b.Connected(b.Fixture.Connector(apitest.REST, perm.AccountAPIAccess, perm.ProgrammesRead), b.user)
	b.Fixture.SetLLM(false)
	b.forbidden("LLM integration off", noAccess, b.with(held.Access))
}

func TestAuthorizer_PostgresOutageIs503(t *testing.T) {
	b := newBearerEnv(t)
	c, secret := b.Fixture.Confidential(perm.AccountAPIAccess)
	access, token := b.Linked(c, secret, b.user).Access, b.Fixture.Token(b.user, perm.AccountAPIAccess)
	restore := b.CutPostgres()
	for what, bearer := range map[string]credential.Secret{"access token": access, "personal access token": token} {
		answer := b.with(bearer)
		if answer.Status != 503 || answer.Text("error") != "temporarily_unavailable" ||
			answer.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", what, answer.Status, answer.Body)
		}
	}
	b.gateway("no bearer during an outage", b.ask(b.Fixture.WorkspaceID.String()), 401, "Unauthorized")
	b.gateway("a forged access token during an outage", b.with("a.b.c"), 403, "Forbidden")
	restore()
	b.passes("afterwards", b.with(token))
	for _, secret := range []credential.Secret{access, token} {
		if strings.Contains(b.Log.String(), secret.Reveal()) {
			t.Error("a token is in the log")
		}
	}
}
