package gateway

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// TestFlow_WorksThroughGateway: consent, code, token, a call, MCP, refresh, and a replay that revokes the grant. All
// of these contain secrets, which TestMain searches for in the logs. This test checks that the requests are in the
// gateway's log.
func TestFlow_WorksThroughGateway(t *testing.T) {
	each(t, func(t *testing.T, s *site, f *front) {
		p := s.product(t, f.transport())
		ws := p.NewWorkspace(t)
		person := p.Person(t, ws.Owner)
		connector := ws.ConnectorFor(t, p.BaseURL+"/mcp", harness.ReadProgrammes)
		first := connector.Connect(t, person)
		call := func(token string) harness.Answer {
			return p.As(token).With("Accept", "application/json, text/event-stream").JSON(t, http.MethodPost, "/mcp",
				`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami"}}`)
		}
		who := call(first.AccessToken).Wants(t, http.StatusOK)
		if !strings.Contains(string(who.Body), ws.Workspace.Name) {
			t.Errorf("whoami does not name the workspace:\n%s", who)
		}
		second := connector.Refresh(t, first.RefreshToken).Tokens(t)
		call(second.AccessToken).Wants(t, http.StatusOK)
		connector.Refresh(t, first.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		answer := call(second.AccessToken)
		answer.WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
		if challenge := answer.Header.Get("WWW-Authenticate"); !strings.Contains(challenge, p.BaseURL+"/.well-known/") {
			t.Errorf("wrong resource_metadata in the challenge: %s", challenge)
		}
		// Secrets where they do not belong.
		p.API().With("Referer", p.AppURL+"/?code="+first.RefreshToken).With("Cookie", "x="+first.RefreshToken).
			With("X-Api-Key", first.RefreshToken).
			With("User-Agent", first.RefreshToken).
			Get(t, "/v1/account/oauth/jwks?access_token="+first.RefreshToken).
			Wants(t, http.StatusOK)
		for _, path := range []string{harness.TokenPath, "/oauth/authorize", "/mcp"} {
			f.wantLogged(t, `"`+path+`"`)
		}
	})
}

// wantLogged waits until the part is in the gateway's log.
func (f *front) wantLogged(t *testing.T, part string) {
	t.Helper()
	await.True(t, part+" is in the gateway's log", func() bool {
		text, err := os.ReadFile(f.log)
		must(t, err)
		return strings.Contains(string(text), part)
	})
}
