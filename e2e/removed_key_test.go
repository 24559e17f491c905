package e2e

import (
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// administer runs a command of `authserver admin`.
func administer(t *testing.T, s *stack.Stack, args ...string) {
	t.Helper()
	line := append([]string{"-c", `set -a; . "$0"; exec "$@"`, s.AdminFile(), s.Authserver(), "admin"}, args...)
	if out, err := exec.CommandContext(t.Context(), "sh", line...).CombinedOutput(); err != nil {
		t.Fatalf("admin %v: %v\n%s", args, err, out)
	}
}

// Contract, section 6: after a signing key is removed, the next request with one of its tokens is rejected on every
// route.
func TestSigningKey_RemovedIsRejectedAtOnce(t *testing.T) {
	t.Parallel()
	running := harness.Private(t, harness.Options{})
	p := harness.NewProduct(t, running, &met)
	ws, service := p.NewWorkspace(t), p.DemoService()
	owner := p.Person(t, ws.Owner)
	connector := ws.Connector(t, harness.ReadProgrammes)
	assistant := ws.ConnectorFor(t, p.BaseURL+"/mcp", harness.ReadProgrammes)
	app := ws.Confidential(t, "", harness.APIAccess, harness.ReadProgrammes)
	connected := connector.Connect(t, owner)
	stolen := held{connected.AccessToken, assistant.Connect(t, owner).AccessToken, app.Connect(t, owner).AccessToken}
	kid := keyOf(t, stolen.rest)
	works := func(what string, tokens held) {
		t.Helper()
		t.Log(what)
		p.In(ws.Workspace, tokens.rest).Get(t, harness.ListPath).Wants(t, http.StatusOK)
		rpc(t, mcp(p, tokens.mcp), "tools/list", nil).Wants(t, http.StatusOK)
		p.As(tokens.account).Get(t, ws.Clients()).Wants(t, http.StatusOK)
		for _, token := range []string{tokens.rest, tokens.mcp, tokens.account} {
			if active := service.Introspect(t, token).Wants(t, http.StatusOK).Object(t)["active"]; active != true {
				t.Errorf("introspection returns active: %v", active)
			}
		}
	}
	works("before the rotation", stolen)

	administer(t, running, "keys", "rotate")
	var other held
	await.True(t, "the next key signs", func() bool {
		other.rest = connector.Connect(t, owner).AccessToken
		return keyOf(t, other.rest) != kid
	})
	other.mcp, other.account = assistant.Connect(t, owner).AccessToken, app.Connect(t, owner).AccessToken
	works("under the next key", other)
	works("under the retired key", stolen)

	administer(t, running, "keys", "remove", "--", kid)
	p.In(ws.Workspace, stolen.rest).Get(t, harness.ListPath).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	wantsChallenge(t, p, rpc(t, mcp(p, stolen.mcp), "tools/list", nil), `error="invalid_token"`)
	p.As(stolen.account).Get(t, ws.Clients()).Wants(t, http.StatusForbidden)
	for _, token := range []string{stolen.rest, stolen.mcp, stolen.account} {
		wantsInactive(t, service.Introspect(t, token))
	}
	works("under the other key, after the removal", other)
	// The current key is removed: the processes sign with the next one at once, before they read the keys again.
	current := keyOf(t, other.rest)
	before := connector.Connect(t, owner)
	administer(t, running, "keys", "remove", "--", current)
	for _, tokens := range []harness.Tokens{
		connector.Refresh(t, before.RefreshToken).Tokens(t), connector.Connect(t, owner), app.Connect(t, owner),
	} {
		if keyOf(t, tokens.AccessToken) == current {
			t.Error("a removed key signed a token")
		}
		p.In(ws.Workspace, tokens.AccessToken).Get(t, harness.ListPath).Wants(t, http.StatusOK)
	}
	// The grants remain: a refresh returns a token of the other key.
	connector.List(t, connector.Refresh(t, connected.RefreshToken).Tokens(t)).Wants(t, http.StatusOK)
}

func wantsInactive(t *testing.T, answer harness.Answer) {
	t.Helper()
	if got := strings.TrimSpace(string(answer.Wants(t, http.StatusOK).Body)); got != `{"active":false}` {
		t.Errorf("want {\"active\":false}:\n%s", answer)
	}
}

// held contains access tokens of one signing key.
type held struct{ rest, mcp, account string }

func keyOf(t *testing.T, token string) string {
	t.Helper()
	kid, _ := harness.Decode(t, token).Header["kid"].(string)
	return kid
}
