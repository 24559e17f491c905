package token_test

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

func TestIntrospect_DescribesAccessTokensOfBothResources(t *testing.T) {
	t.Parallel()
	b := newIntrospectEnv(t)
	confidential, secret := b.Fixture.Confidential(perm.ProgrammesRead)
	rest, restHeld := b.connector(apitest.REST)
	mcp, mcpHeld := b.connector(apitest.MCP)
	for _, c := range []struct {
		what, resource string
		client         client.Client
		token          credential.Secret
		scope          string
	}{
		{
			"confidential",
			apitest.REST,
			confidential,
			b.Linked(confidential, secret, b.user).Access,
			"programmes:read:programmes",
		},
		{"connector", apitest.REST, rest, restHeld.Access, "programmes:read:programmes programmes:write:programmes"},
		{"connector of MCP", apitest.MCP, mcp, mcpHeld.Access, "programmes:read:programmes"},
	} {
		claims, err := b.Keyring.Public().Verify(c.token.Reveal(), apitest.Issuer, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		got := b.active(c.what, c.token)
		b.same(c.what, got, map[string]any{
			"scope":      c.scope,
			"client_id":  c.client.ID.String(),
			"sub":        b.user.String(),
			"iss":        apitest.Issuer,
			"aud":        c.resource,
			"token_type": "Bearer",
			"tenant_id":  b.Fixture.WorkspaceID.String(),
			"jti":        claims.ID,
			"exp":        float64(claims.Expires.Unix()),
			"iat":        float64(claims.IssuedAt.Unix()),
		})
		if held := texts(got["permissions"]); strings.Join(held, " ") != c.scope {
			t.Errorf("%s: permissions %v", c.what, got["permissions"])
		}
		if _, there := got["username"]; there || len(got) != 12 {
			t.Errorf("%s: the answer has %v", c.what, names(got))
		}
	}
	if b.Uses.Seen() != 3 {
		t.Errorf("%d uses were recorded, want 3", b.Uses.Seen())
	}
}

func TestIntrospect_DescribesPersonalAccessToken(t *testing.T) {
	t.Parallel()
	b := newIntrospectEnv(t)
	token := b.Fixture.Token(b.user, perm.ProgrammesRead, perm.EngageReadForms)
	b.Fixture.Exec(
		`update account.personal_access_tokens
			set created_at = '2026-01-02 03:04:05+00', expires_at = '2036-01-02 03:04:05+00'`,
	)
	got := b.active("personal access token", token)
	b.same("personal access token", got, map[string]any{
		"scope": "programmes:read:programmes engage:read:forms", "sub": b.user.String(), "iss": apitest.Issuer,
		"aud": apitest.REST, "token_type": "Bearer", "tenant_id": b.Fixture.WorkspaceID.String(),
		"iat": float64(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Unix()),
		"exp": float64(time.Date(2036, 1, 2, 3, 4, 5, 0, time.UTC).Unix()),
	})
	if held := texts(got["permissions"]); !reflect.DeepEqual(held, []string{"programmes:read:programmes"}) {
		t.Errorf("permissions %v: want what token and user both hold", held)
	}
	for _, name := range []string{"client_id", "jti"} {
		if _, there := got[name]; there {
			t.Errorf("a personal access token has no %s", name)
		}
	}
}

func TestIntrospect_TokenDoesNotGainPermissionsOfGrant(t *testing.T) {
	t.Parallel()
	b := newIntrospectEnv(t)
	c, secret := b.Fixture.Confidential(perm.ProgrammesRead)
	held := b.Linked(c, secret, b.user)
	b.Fixture.Exec(`update account.grants set permissions = '{programmes:read:programmes,programmes:write:programmes}'`)
	got := b.active("the token from before", held.Access)
	if got["scope"] != "programmes:read:programmes" ||
		!reflect.DeepEqual(texts(got["permissions"]), []string{"programmes:read:programmes"}) {
		t.Errorf("scope %v, permissions %v", got["scope"], got["permissions"])
	}
}

func TestIntrospect_LostPermissionsLeaveTokenActive(t *testing.T) {
	t.Parallel()
	b := newIntrospectEnv(t)
	_, held := b.connector(apitest.REST)
	personal := b.Fixture.Token(b.user, perm.ProgrammesRead)
	b.Fixture.Exec(`update account.memberships set permissions = '{engage:read:forms}' where user_id = $1`, b.user)
	for what, token := range map[string]credential.Secret{"connector": held.Access, "personal": personal} {
		got := b.active(what, token)
		if list := texts(got["permissions"]); list == nil || len(list) != 0 {
			t.Errorf("%s: permissions %v, want an empty array", what, got["permissions"])
		}
		if got["scope"] == nil {
			t.Errorf("%s: the scope is missing", what)
		}
	}
}

func TestIntrospect_EndedCredentialIsInactive(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*introspectEnv){
		"membership ended": func(b *introspectEnv) {
			b.Fixture.Exec(`delete from account.memberships where user_id = $1`, b.user)
		},
		"user disabled": func(b *introspectEnv) {
			b.Fixture.Exec(`update account.users set disabled_at = now() where id = $1`, b.user)
		},
		"revoked": func(b *introspectEnv) {
			b.Fixture.Exec(`update account.grants set state = 'revoked', revoked_at = now()`)
			b.Fixture.Exec(`update account.personal_access_tokens set revoked_at = now()`)
		},
		"over": func(b *introspectEnv) {
			b.Fixture.Exec(`update account.grants set ends_at = now()`)
			b.Fixture.Exec(`update account.personal_access_tokens set expires_at = now()`)
		},
		"unknown": func(b *introspectEnv) {
			b.Fixture.Exec(`delete from account.grants`)
			b.Fixture.Exec(`delete from account.personal_access_tokens`)
		},
	}
	for what, happen := range cases {
		t.Run(what, func(t *testing.T) {
			b := newIntrospectEnv(t)
			_, held := b.connector(apitest.REST)
			personal := b.Fixture.Token(b.user, perm.ProgrammesRead)
			b.active("before", held.Access)
			b.active("before", personal)
			happen(b)
			b.inactive("access token", held.Access)
			b.inactive("personal access token", personal)
		})
	}
}

// This process still holds the removed key. Postgres reports that it was removed.
func TestIntrospect_TokenOfRemovedKeyIsInactive(t *testing.T) {
	t.Parallel()
	b := newIntrospectEnv(t)
	_, held := b.connector(apitest.REST)
	_, assistant := b.connector(apitest.MCP)
	b.active("before", held.Access)
	b.active("before, of MCP", assistant.Access)
	b.Fixture.Exec(`update account.signing_keys set state = 'removed' where state = 'current'`)
	b.inactive("removed", held.Access)
	b.inactive("removed, of MCP", assistant.Access)
	b.active("personal access token", b.Fixture.Token(b.user, perm.ProgrammesRead))
}

func TestIntrospect_LLMIntegrationOffEndsOnlyConnectors(t *testing.T) {
	t.Parallel()
	b := newIntrospectEnv(t)
	_, held := b.connector(apitest.MCP)
	confidential, secret := b.Fixture.Confidential(perm.ProgrammesRead)
	linked := b.Linked(confidential, secret, b.user)
	personal := b.Fixture.Token(b.user, perm.ProgrammesRead)
	b.Fixture.SetLLM(false)
	b.inactive("connector", held.Access)
	b.active("confidential", linked.Access)
	b.active("personal access token", personal)
}

func TestIntrospect_ExpiredAccessTokenIsInactive(t *testing.T) {
	t.Parallel()
	b := newIntrospectEnv(t)
	_, held := b.connector(apitest.REST)
	b.Wait(time.Hour - time.Minute)
	b.active("a moment before", held.Access)
	b.Wait(61 * time.Second) // within the leeway that other verifiers have
	b.inactive("a second after", held.Access)
}

func TestIntrospect_OtherTextIsInactive(t *testing.T) {
	t.Parallel()
	b := newIntrospectEnv(t)
	c, held := b.connector(apitest.REST)
	_, code := b.Consent(c, b.user)
	foreign := apitest.Own(t)
	other := foreign.Fixture.Connector(apitest.REST, perm.ProgrammesRead)
	stranger := foreign.Connected(other, foreign.Fixture.Member(perm.ProgrammesRead)).Access
	access, personal := held.Access.Reveal(), b.Fixture.Token(b.user, perm.ProgrammesRead).Reveal()
	for what, text := range map[string]string{
		"refresh token":          held.Refresh.Reveal(),
		"authorization code":     code.Reveal(),
		"client secret":          b.service.Secret.Reveal(),
		"another server's token": stranger.Reveal(),
		"cut":                    access[:len(access)-1],
		"longer":                 access + "A",
		"a space":                " " + personal,
		"alg none":               "eyJhbGciOiJub25lIiwidHlwIjoiYXQrand0In0.e30.",
		"cut personal token":     personal[:len(personal)-1],
		"NUL":                    "\x00",
		"word":                   "token",
	} {
		b.inactive(what, credential.Secret(text))
	}
}

func TestIntrospect_ClaimsThatDifferFromGrantAreInactive(t *testing.T) {
	t.Parallel()
	b := newIntrospectEnv(t)
	_, held := b.connector(apitest.REST)
	key, err := b.Keyring.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	claims, err := b.Keyring.Public().Verify(held.Access.Reveal(), apitest.Issuer, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for what, alter := range map[string]func(*accesstoken.Claims){
		"another user":     func(c *accesstoken.Claims) { c.Subject = uuid.New() },
		"another client":   func(c *accesstoken.Claims) { c.ClientID = uuid.NewString() },
		"another resource": func(c *accesstoken.Claims) { c.Audience = apitest.MCP },
		"another tenant":   func(c *accesstoken.Claims) { c.WorkspaceID = uuid.New() },
	} {
		altered := claims
		alter(&altered)
		token, err := accesstoken.Sign(key, altered)
		if err != nil {
			t.Fatal(err)
		}
		b.inactive(what, token)
	}
}

func TestIntrospect_MalformedRequestIs400(t *testing.T) {
	t.Parallel()
	b := newIntrospectEnv(t)
	auth := apitest.Basic(b.service.ID.String(), b.service.Secret)
	personal := b.Fixture.Token(b.user, perm.ProgrammesRead).Reveal()
	post := func(contentType, body string) apitest.Answer {
		return b.Send(
			http.MethodPost,
			apitest.IntrospectPath,
			body,
			append([]string{"Content-Type", contentType}, auth...)...)
	}
	const form = "application/x-www-form-urlencoded"
	for what, answer := range map[string]apitest.Answer{
		"no token":        post(form, ""),
		"an empty token":  post(form, "token="),
		"two tokens":      post(form, "token="+personal+"&token="+personal),
		"a broken form":   post(form, "token=%zz"),
		"JSON":            post("application/json", `{"token":"`+personal+`"}`),
		"no content type": post("", "token="+personal),
		"token in the query": b.Send(http.MethodPost, apitest.IntrospectPath+"?token="+personal, "", append([]string{
			"Content-Type",
			form,
		}, auth...)...),
	} {
		if answer.Status != 400 || answer.Text("error") != "invalid_request" || answer.Text("error_description") == "" {
			t.Errorf("%s: %d %s", what, answer.Status, answer.Body)
		}
	}
	if words := post("application/json", `{"token":"`+personal+`"}`).Text("error_description"); !strings.Contains(
		words,
		"Content-Type",
	) {
		t.Errorf("JSON: %q does not name the cause", words)
	}
	if answer := post(form, "token="+strings.Repeat("x", 64<<10)); answer.Status != 413 {
		t.Errorf("a long body: %d", answer.Status)
	}
	hinted := post(form, "token_type_hint=refresh_token&unknown=1&token="+personal)
	if hinted.Object()["active"] != true {
		t.Errorf("a wrong hint: %d %s", hinted.Status, hinted.Body)
	}
}

func TestIntrospect_ResponseIsNotCached(t *testing.T) {
	t.Parallel()
	b := newIntrospectEnv(t)
	if control := b.introspect("word").Header.Get("Cache-Control"); control != "no-store" {
		t.Errorf("Cache-Control: %q", control)
	}
}
