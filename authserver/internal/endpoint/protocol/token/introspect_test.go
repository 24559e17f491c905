package token_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// assistant returns a connection of a connector of MCP.
func (b *testEnv) assistant() (client.Client, apitest.Connection) {
	b.t.Helper()
	c := b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead, perm.ProgrammesWrite)
	return c, b.Connected(c, b.user)
}

func TestIntrospect_DescribesAccessTokensOfBothResources(t *testing.T) {
	b := newTestEnv(t)
	mcp, assistant := b.assistant()
	for _, c := range []struct {
		what, resource string
		client         client.Client
		token          credential.Secret
		scope          string
	}{
		{"confidential", apitest.REST, b.linked, b.Linked(b.linked, b.secret, b.user).Access, read},
		{"connector", apitest.REST, b.app, b.connected().Access, both},
		{"connector of MCP", apitest.MCP, mcp, assistant.Access, read},
	} {
		claims, answer := b.claimsOf(c.token), b.introspect(c.token)
		b.WantsAll(c.what, answer, 200, map[string]any{
			"active":      true,
			"scope":       c.scope,
			"client_id":   c.client.ID.String(),
			"sub":         b.user.String(),
			"iss":         apitest.Issuer,
			"aud":         c.resource,
			"token_type":  "Bearer",
			"tenant_id":   b.Fixture.WorkspaceID.String(),
			"jti":         claims.ID,
			"exp":         float64(claims.Expires.Unix()),
			"iat":         float64(claims.IssuedAt.Unix()),
			"permissions": listed(strings.Fields(c.scope)...),
		})
	}
	b.Equal("uses", b.Uses.Seen(b.Fixture.WorkspaceID), 3)
}

// listed returns texts as a JSON array is decoded.
func listed(texts ...string) []any {
	out := make([]any, len(texts))
	for i, text := range texts {
		out[i] = text
	}
	return out
}

func TestIntrospect_DescribesPersonalAccessToken(t *testing.T) {
	b := newTestEnv(t)
	token := b.Fixture.Token(b.user, perm.ProgrammesRead, perm.EngageReadForms)
	b.Fixture.Exec(`update account.personal_access_tokens set created_at = '2026-01-02 03:04:05+00',
		expires_at = '2036-01-02 03:04:05+00' where user_id = $1`, b.user)
	b.WantsAll("personal access token", b.introspect(token), 200, map[string]any{
		"active":      true,
		"scope":       read + " engage:read:forms",
		"sub":         b.user.String(),
		"iss":         apitest.Issuer,
		"aud":         apitest.REST,
		"token_type":  "Bearer",
		"tenant_id":   b.Fixture.WorkspaceID.String(),
		"iat":         float64(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Unix()),
		"exp":         float64(time.Date(2036, 1, 2, 3, 4, 5, 0, time.UTC).Unix()),
		"permissions": listed(read), // what token and user both hold
	})
}

// describes requires the scope and the permissions of an active token.
func (b *testEnv) describes(what string, token credential.Secret, scope string, permissions ...string) apitest.Answer {
	b.t.Helper()
	answer := b.introspect(token)
	b.WantsMembers(what, answer, map[string]any{"active": true, "scope": scope, "permissions": listed(permissions...)})
	return answer
}

func TestIntrospect_LostPermissionsLeaveTokenActive(t *testing.T) {
	b := newTestEnv(t)
	held, linked := b.connected(), b.Linked(b.linked, b.secret, b.user)
	personal := b.Fixture.Token(b.user, perm.ProgrammesRead)
	b.Fixture.Exec(`update account.grants set permissions = $2 where id = $1`, linked.Grant.ID, strings.Fields(both))
	b.describes("a token from before its grant had more", linked.Access, read, read)
	b.SetPermissions(b.user, perm.EngageReadForms)
	b.describes("connector", held.Access, both)
	b.describes("personal", personal, read)
}

// A grant that a policy has narrowed is described as it is now, whatever its access token says.
func TestIntrospect_DescribesNarrowedGrantAsItIsNow(t *testing.T) {
	b := newTestEnv(t)
	held := b.connected()
	b.Fixture.Exec(`update account.grants set created_at = now() - interval '1 day' + interval '10 minutes'
		where id = $1`, held.Grant.ID)
	b.LimitConnectors(workspace.ConnectorPolicy{
		Platforms:   workspace.Platforms(),
		Permissions: perm.NewSet(perm.ProgrammesRead),
		Days:        1,
	})
	narrowed := b.describes("narrowed", held.Access, read, read)
	if exp, _ := narrowed.Object()["exp"].(float64); exp > float64(time.Now().Add(11*time.Minute).Unix()) {
		t.Errorf("exp is after the grant's end: %v", exp)
	}
	b.LimitConnectors(workspace.DefaultConnectorPolicy())
	b.describes("raised", held.Access, read, read)
	b.LimitConnectors(workspace.ConnectorPolicy{Permissions: perm.ForConnectors(), Days: 30})
	b.inactive("no platform is allowed", held.Access)
	answer := b.refresh(held.Refresh)
	b.Wants("no platform is allowed", answer, 400, "invalid_grant")
	b.Contains("no platform is allowed", answer.Text("error_description"),
		"The workspace's connector policy ended this connection on ")
}

func TestIntrospect_EndedCredentialIsInactive(t *testing.T) {
	t.Parallel()
	for what, statements := range map[string][]string{
		"membership ended": {`delete from account.memberships where tenant_id = $1`},
		"user disabled": {`update account.users set disabled_at = now()
			where id in (select user_id from account.memberships where tenant_id = $1)`},
		"revoked": {
			`update account.grants set state = 'revoked', revoked_at = now() where tenant_id = $1`,
			`update account.personal_access_tokens set revoked_at = now() where tenant_id = $1`,
		},
		"over": {
			`update account.grants set ends_at = now() where tenant_id = $1`,
			`update account.personal_access_tokens set expires_at = now() where tenant_id = $1`,
		},
		"unknown": {
			`delete from account.grants where tenant_id = $1`,
			`delete from account.personal_access_tokens where tenant_id = $1`,
		},
	} {
		t.Run(what, func(t *testing.T) {
			b := newTestEnv(t)
			held, personal := b.connected(), b.Fixture.Token(b.user, perm.ProgrammesRead)
			b.active("before", held.Access)
			b.active("before", personal)
			for _, statement := range statements {
				b.Fixture.Exec(statement, b.Fixture.WorkspaceID)
			}
			b.inactive("access token", held.Access)
			b.inactive("personal access token", personal)
		})
	}
}

func TestIntrospect_LLMIntegrationOffEndsOnlyConnectors(t *testing.T) {
	b := newTestEnv(t)
	_, held := b.assistant()
	linked, personal := b.Linked(b.linked, b.secret, b.user), b.Fixture.Token(b.user, perm.ProgrammesRead)
	b.Fixture.SetLLM(false)
	b.inactive("connector", held.Access)
	b.active("confidential", linked.Access)
	b.active("personal access token", personal)
}

func TestIntrospect_ExpiredAccessTokenIsInactive(t *testing.T) {
	b := inTurn(t)
	held := b.connected()
	b.Wait(time.Until(b.claimsOf(held.Access).Expires) - time.Minute)
	b.active("a minute before", held.Access)
	b.Wait(61 * time.Second) // within the leeway that other verifiers have
	b.inactive("a second after", held.Access)
}

func TestIntrospect_OtherTextIsInactive(t *testing.T) {
	b := newTestEnv(t)
	held, moved := b.connected(), b.connected()
	b.Fixture.Exec(`update account.grants set user_id = $2 where id = $1`, moved.Grant.ID,
		b.Fixture.Member(perm.ProgrammesRead))
	_, code := b.Consent(b.app, b.user)
	access, personal := held.Access, b.Fixture.Token(b.user, perm.ProgrammesRead)
	for what, text := range map[string]credential.Secret{
		"refresh token":      held.Refresh,
		"authorization code": code,
		"client secret":      b.service.Secret,
		"another user":       moved.Access, // package standing has the other claims
		"cut":                access[:len(access)-1],
		"longer":             access + "A",
		"a space":            " " + personal,
		"cut personal token": personal[:len(personal)-1],
		"NUL":                "\x00",
		"word":               "token",
	} {
		b.inactive(what, text)
	}
}

func TestIntrospect_OutageIsNeverInactive(t *testing.T) {
	b := inTurn(t)
	held, personal := b.connected(), b.Fixture.Token(b.user, perm.ProgrammesRead)
	restore := b.CutPostgres()
	for _, token := range []credential.Secret{held.Access, personal, "word"} {
		b.Wants("outage", b.introspect(token), 503, "temporarily_unavailable")
	}
	restore()
	b.active("afterwards", held.Access)
	b.Redis.Kill()
	b.active("without Redis", held.Access)
}

// With the lock on the memberships, the client can be read and its grant cannot.
func TestIntrospect_OutageAfterAuthenticationIsNeverInactive(t *testing.T) {
	b := impatiently(t)
	held, personal := b.connected(), b.Fixture.Token(b.user, perm.ProgrammesRead)
	b.Lock(`lock table account.memberships in access exclusive mode`)
	for _, answer := range atOnce(
		func() apitest.Answer { return b.introspect(held.Access) },
		func() apitest.Answer { return b.introspect(personal) },
	) {
		b.Wants("with the lock", answer, 503, "temporarily_unavailable")
	}
}

func TestIntrospect_OnlyServicesMayCall(t *testing.T) {
	b := newTestEnv(t)
	held, deleted, other := b.connected(), b.Service(), b.Service()
	b.Fixture.Exec(`update account.oauth_clients set deleted_at = now() where id = $1`, deleted.ID)
	personal := b.Fixture.Token(b.user)
	id, own, confidential := b.service.ID.String(), b.service.Secret.Reveal(), b.linked.ID.String()
	basic := apitest.Basic(id, b.service.Secret)
	posted := []string{"client_id", id, "client_secret", own}
	for _, c := range []struct {
		what    string
		status  int
		headers []string
		form    []string
	}{
		{"Basic", 200, basic, nil},
		{"id and secret in the form", 200, nil, posted},
		{"Basic, and the same id in the form", 200, basic, []string{"client_id", id}},
		{"Basic, and the secret in the form", 400, basic, []string{"client_secret", own}},
		{"Basic, and an empty secret in the form", 400, basic, []string{"client_secret", ""}},
		{"both ways at once", 400, basic, posted},
		{"Basic, and another id in the form", 400, basic, []string{"client_id", other.ID.String()}},
		{"the id twice", 400, nil, append(posted, "client_id", id)},
		{"the id alone", 401, nil, []string{"client_id", id}},
		{"the secret alone", 401, nil, []string{"client_secret", own}},
		{"another service's secret", 401, nil, []string{"client_id", id, "client_secret", other.Secret.Reveal()}},
		{"an unknown service", 401, nil, []string{"client_id", uuid.NewString(), "client_secret", own}},
		{"no UUID", 401, nil, []string{"client_id", "service", "client_secret", own}},
		{"an app", 401, nil, []string{"client_id", confidential, "client_secret", b.secret.Reveal()}},
		{"a user's access token beside them", 401, apitest.Bearer(held.Access), posted},
		{"no credentials", 401, nil, nil},
		{"a user's access token", 401, apitest.Bearer(held.Access), nil},
		{"a personal access token", 401, apitest.Bearer(personal), nil},
		{"Basic of an app", 401, apitest.Basic(confidential, b.secret), nil},
		{"Basic of a connector", 401, apitest.Basic(b.name, ""), nil},
		{"Basic with a wrong secret", 401, apitest.Basic(id, b.secret), nil},
		{"Basic without a secret", 401, apitest.Basic(id, ""), nil},
		{"Basic of an unknown client", 401, apitest.Basic(uuid.NewString(), b.service.Secret), nil},
		{"Basic without a UUID", 401, apitest.Basic("service", b.service.Secret), nil},
		{"a deleted service", 401, apitest.Basic(deleted.ID.String(), deleted.Secret), nil},
		{"a scheme without content", 401, []string{"Authorization", "Basic"}, nil},
		{"two headers", 401, append(basic, basic...), nil},
	} {
		form := append([]string{"token", personal.Reveal()}, c.form...)
		answer := b.FormWith(apitest.IntrospectPath, c.headers, form...)
		b.Wants(c.what, answer, c.status, map[int]string{400: "invalid_request", 401: "invalid_client"}[c.status])
		challenged := strings.HasPrefix(answer.Header.Get("WWW-Authenticate"), "Basic ")
		if challenged != (c.status == 401) || (c.status == 200 && answer.Object()["active"] != true) {
			t.Errorf("%s: want a challenge with 401 only, and active with 200\n%s", c.what, b.Explain(answer))
		}
	}
	inQuery := apitest.IntrospectPath + "?client_id=" + id + "&client_secret=" + own
	b.Wants("in the query", b.Form(inQuery, "token", personal.Reveal()), 401, "invalid_client")
	inJSON := b.PostJSON(apitest.IntrospectPath, append(posted, "token", personal.Reveal())...)
	b.Wants("in JSON", inJSON, 401, "invalid_client")
}

func TestIntrospect_MalformedRequestIs400(t *testing.T) {
	b := newTestEnv(t)
	personal := b.Fixture.Token(b.user).Reveal()
	const query = apitest.IntrospectPath + "?token="
	send := func(path, contentType, body string) apitest.Answer {
		return b.Send(http.MethodPost, path, body, append(apitest.Basic(b.service.ID.String(), b.service.Secret),
			"Content-Type", contentType)...)
	}
	post := func(contentType, body string) apitest.Answer { return send(apitest.IntrospectPath, contentType, body) }
	inJSON := post(asJSON, `{"token":"`+personal+`"}`)
	for what, answer := range map[string]apitest.Answer{
		"no token":           post(asForm, ""),
		"an empty token":     post(asForm, "token="),
		"two tokens":         post(asForm, "token="+personal+"&token="+personal),
		"JSON":               inJSON,
		"token in the query": send(query+personal, asForm, ""),
	} {
		b.Wants(what, answer, 400, "invalid_request")
	}
	b.Contains("JSON", inJSON.Text("error_description"), "Content-Type")
	b.Wants("a long body", post(asForm, "token="+strings.Repeat("x", 64<<10)), 413, "invalid_request")
	hinted := post(asForm, "token_type_hint=refresh_token&unknown=1&token="+personal)
	b.WantsMembers("a wrong hint", hinted, map[string]any{"active": true})
}
