package e2e

import (
	"net/http"
	"net/url"
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
			mcp.Connect(t, owner).AccessToken, mcp.ClientID, harness.ReadProgrammes, p.BaseURL + "/mcp",
		},
		"confidential": {
			app.Connect(t, owner).AccessToken, app.ClientID, harness.ReadProgrammes, p.BaseURL + "/v1",
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
