package e2e

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Contract, section 5: POST /oauth/introspect (RFC 7662), for internal services.

func wantsInactive(t *testing.T, answer harness.Answer) {
	t.Helper()
	if got := strings.TrimSpace(string(answer.Wants(t, http.StatusOK).Body)); got != `{"active":false}` {
		t.Errorf("want {\"active\":false}:\n%s", answer)
	}
}

func TestIntrospection_ReturnsCurrentPermissions(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws, service := p.NewWorkspace(t), p.DemoService()
	owner := p.Person(t, ws.Owner)
	connector := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
	mcp := ws.ConnectorFor(t, p.BaseURL+"/mcp", harness.ReadProgrammes)
	app := ws.Confidential(t, "", harness.ReadProgrammes)
	pat := p.Database.Token(t, ws.Workspace, ws.Owner, harness.ReadProgrammes, harness.WriteProgrammes)
	both := harness.ReadProgrammes + " " + harness.WriteProgrammes
	for name, c := range map[string]struct{ token, client, scope, aud string }{
		"connector": {connector.Connect(t, owner).AccessToken, connector.ClientID, both, p.BaseURL + "/v1"},
		"connector for MCP": {
			mcp.Connect(t, owner).AccessToken,
			mcp.ClientID,
			harness.ReadProgrammes,
			p.BaseURL + "/mcp",
		},
		"confidential": {
			app.Connect(t, owner).AccessToken,
			app.ClientID,
			harness.ReadProgrammes,
			p.BaseURL + "/v1",
		},
		"personal access token": {pat, "", both, p.BaseURL + "/v1"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := service.Introspect(t, c.token).Wants(t, http.StatusOK)
			object := answer.Object(t)
			for key, want := range map[string]any{
				"active":     true,
				"scope":      c.scope,
				"sub":        ws.Owner.ID,
				"iss":        p.BaseURL,
				"aud":        c.aud,
				"token_type": "Bearer",
				"tenant_id":  ws.Workspace.ID,
			} {
				if object[key] != want {
					t.Errorf("%s is %v, want %v", key, object[key], want)
				}
			}
			if client, there := object["client_id"]; (c.client == "") == there || (there && client != c.client) {
				t.Errorf("client_id is %v", client)
			}
			exp, _ := object["exp"].(float64)
			iat, _ := object["iat"].(float64)
			if now := float64(time.Now().Unix()); exp <= now || iat > now+1 || iat < now-60 {
				t.Errorf("exp %v, iat %v", object["exp"], object["iat"])
			}
			if got := strings.Join(sorted(texts(object["permissions"])), " "); got != c.scope {
				t.Errorf("permissions are %q, want %q", got, c.scope)
			}
		})
	}
}

// "no longer a member, or a connector with LLM integration off: {"active":false}; only permissions lost: active,
// permissions empty"
func TestIntrospection_LostAccess(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws, service := p.NewWorkspace(t), p.DemoService()
	owner := p.Person(t, ws.Owner)
	connector := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes).Connect(t, owner).AccessToken
	app := ws.Confidential(t, "", harness.ReadProgrammes).Connect(t, owner).AccessToken
	permissions := func(token string) []string {
		t.Helper()
		object := service.Introspect(t, token).Wants(t, http.StatusOK).Object(t)
		if _, isList := object["permissions"].([]any); object["active"] != true || !isList {
			t.Errorf("active is %v, permissions %v", object["active"], object["permissions"])
		}
		return sorted(texts(object["permissions"]))
	}
	all := []string{connector, app, ws.Token}
	p.Database.Permit(t, ws.Workspace, ws.Owner, harness.ReadProgrammes)
	if got := permissions(connector); !slices.Equal(got, []string{harness.ReadProgrammes}) {
		t.Errorf("with one permission lost: %v", got)
	}
	p.Database.Permit(t, ws.Workspace, ws.Owner)
	for _, token := range all {
		if got := permissions(token); len(got) != 0 {
			t.Errorf("with all permissions lost: %v", got)
		}
	}
	p.Database.Permit(t, ws.Workspace, ws.Owner, harness.Everything()...)
	p.Database.SetLLM(t, ws.Workspace, false)
	wantsInactive(t, service.Introspect(t, connector))
	permissions(app)
	permissions(ws.Token)
	p.Database.SetLLM(t, ws.Workspace, true)
	p.Database.Leave(t, ws.Workspace, ws.Owner)
	for _, token := range all {
		wantsInactive(t, service.Introspect(t, token))
	}
}

func TestIntrospection_InvalidTokensAreInactive(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws, service := p.NewWorkspace(t), p.DemoService()
	owner := p.Person(t, ws.Owner)
	connector := ws.Connector(t, harness.ReadProgrammes)
	app := ws.Confidential(t, "", harness.ReadProgrammes)
	tokens := connector.Connect(t, owner)
	revoked := p.Database.Token(t, ws.Workspace, ws.Owner, harness.ReadProgrammes)
	expired := p.Database.Token(t, ws.Workspace, ws.Owner, harness.ReadProgrammes)
	p.Database.RevokeToken(t, revoked)
	p.Database.ExpireToken(t, expired)
	dead := connector.Connect(t, owner)
	connector.Revoke(t, dead.AccessToken).Wants(t, http.StatusOK)
	ended := app.Connect(t, owner).AccessToken
	p.Database.EndGrantIn(t, harness.GrantOf(t, ended), -time.Second)
	others := forgeries(t, p, tokens.AccessToken)
	for name, token := range map[string]string{
		"refresh token": tokens.RefreshToken,
		"code":          app.Code(t, owner),
		"secret":        app.ClientSecret,
		"nonsense":      "nonsense",
		"revoked PAT":   revoked,
		"expired PAT":   expired,
		"unknown PAT":   tamperedPAT(ws.Token),
		"revoked grant": dead.AccessToken,
		"ended grant":   ended,
	} {
		others[name] = token
	}
	for name, token := range others {
		t.Run(name, func(t *testing.T) { wantsInactive(t, service.Introspect(t, token)) })
	}
	if service.Introspect(t, tokens.AccessToken).Object(t)["active"] != true {
		t.Error("the unchanged token is not active")
	}
}

// "client credentials of a client of kind service, HTTP Basic or client_secret_post, else 401; no user's token will
// do"
func TestIntrospection_OnlyServices(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws, service := p.NewWorkspace(t), p.DemoService()
	app := ws.Confidential(t, "client_secret_basic", harness.ReadProgrammes)
	form := url.Values{"token": {ws.Token}}
	for name, value := range map[string]string{
		"no credential":              "",
		"personal access token":      "Bearer " + p.Demo.Tokens.Owner,
		"a confidential application": harness.Basic(app.ClientID, app.ClientSecret),
		"wrong secret":               harness.Basic(service.ClientID, alterLast(service.ClientSecret)),
		"unknown":                    harness.Basic("nonsense", service.ClientSecret),
		"connector":                  harness.Basic(ws.Connector(t, harness.ReadProgrammes).ClientID, ""),
		"no Basic":                   "Basic nonsense",
	} {
		t.Run(name, func(t *testing.T) {
			api := p.API()
			if value != "" {
				api = api.With("Authorization", value)
			}
			answer := api.Form(t, harness.IntrospectPath, form)
			answer.WantsFlat(t, http.StatusUnauthorized, "invalid_client")
			if !strings.HasPrefix(answer.Header.Get("WWW-Authenticate"), "Basic") {
				t.Errorf("WWW-Authenticate is %q", answer.Header.Get("WWW-Authenticate"))
			}
		})
	}
	inBody := url.Values{"token": {ws.Token}, "client_id": {service.ClientID}, "client_secret": {service.ClientSecret}}
	if p.API().Form(t, harness.IntrospectPath, inBody).Wants(t, http.StatusOK).Object(t)["active"] != true {
		t.Error("the token is not active with client_secret_post")
	}
	service.API().Form(t, harness.IntrospectPath, inBody).WantsFlat(t, http.StatusBadRequest, "invalid_request")
	inBody.Set("client_secret", alterLast(service.ClientSecret))
	p.API().Form(t, harness.IntrospectPath, inBody).WantsFlat(t, http.StatusUnauthorized, "invalid_client")
	inBody = url.Values{"token": {ws.Token}, "client_id": {app.ClientID}, "client_secret": {app.ClientSecret}}
	p.API().Form(t, harness.IntrospectPath, inBody).WantsFlat(t, http.StatusUnauthorized, "invalid_client")
	for _, wrong := range []url.Values{{}, {"token": {""}}, {"token": {"a", "b"}}} {
		service.API().Form(t, harness.IntrospectPath, wrong).WantsFlat(t, http.StatusBadRequest, "invalid_request")
	}
}

// Only an administrator's command creates services, and they can use no other endpoint (contract, section 5).
func TestIntrospection_ServicesCanOnlyIntrospect(t *testing.T) {
	t.Parallel()
	p := enter(t)
	service, main := p.DemoService(), p.Demo.Workspaces.Main
	for _, bearer := range []string{service.ClientSecret, service.ClientID} {
		p.In(main, bearer).Get(t, programmes).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	}
	wantsGateway(t, service.API().Get(t, harness.ClientsPath(main)), http.StatusUnauthorized, "Unauthorized")
	p.API().JSON(t, http.MethodPost, harness.TokenPath, map[string]any{
		"client_id":     service.ClientID,
		"client_secret": service.ClientSecret,
		"code":          "x",
		"redirect_uri":  "https://x.example/",
	}).WantsFlat(t, http.StatusBadRequest, "invalid_client", "unauthorized_client", "invalid_grant", "invalid_request")
	for _, grant := range []string{"client_credentials", "authorization_code", "refresh_token"} {
		form := url.Values{
			"grant_type":    {grant},
			"code":          {"x"},
			"redirect_uri":  {"https://x.example/"},
			"refresh_token": {"x"},
		}
		if answer := service.API().Form(t, harness.TokenPath, form); answer.Status != http.StatusBadRequest &&
			answer.Status != http.StatusUnauthorized {
			t.Errorf("a service at the token endpoint:\n%s", answer)
		}
	}
}
