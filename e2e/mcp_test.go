package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// Contract, section 7a, and the behaviour of connector platforms, at the level of HTTP.

const mcpPath = "/mcp"

// mcp returns an API that sends what a hosted connector sends, which includes no tenant header.
func mcp(p *harness.Product, token string) harness.API {
	api := p.API().With("Accept", "application/json, text/event-stream").With("Mcp-Protocol-Version", "2025-06-18")
	if token != "" {
		api = api.With("Authorization", "Bearer "+token)
	}
	return api
}

func rpc(t *testing.T, api harness.API, method string, params any) harness.Answer {
	t.Helper()
	return api.JSON(t, http.MethodPost, mcpPath,
		map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

// callTool calls a tool and returns its structured content and its text.
func callTool(
	t *testing.T,
	api harness.API,
	name string,
	arguments any,
) (content map[string]any, text string, failed bool) {
	t.Helper()
	answer := rpc(t, api, "tools/call", map[string]any{"name": name, "arguments": arguments}).Wants(t, http.StatusOK)
	var reply struct {
		Result struct {
			Content           []struct{ Text string }
			StructuredContent map[string]any
			IsError           bool
		}
	}
	if err := json.Unmarshal(answer.Body, &reply); err != nil || len(reply.Result.Content) == 0 {
		t.Fatalf("no tool result:\n%s", answer)
	}
	return reply.Result.StructuredContent, reply.Result.Content[0].Text, reply.Result.IsError
}

var initialize = map[string]any{
	"protocolVersion": "2025-06-18",
	"capabilities":    map[string]any{},
	"clientInfo":      map[string]any{"name": "e2e", "version": "1"},
}

// wantsChallenge checks the 401 with which every connection begins.
func wantsChallenge(t *testing.T, p *harness.Product, answer harness.Answer, code string) {
	t.Helper()
	answer.WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	challenge := answer.Header.Get("WWW-Authenticate")
	if !strings.HasPrefix(challenge, "Bearer ") ||
		!strings.Contains(challenge, `resource_metadata="`+p.BaseURL+`/.well-known/oauth-protected-resource/mcp"`) ||
		strings.Contains(challenge, "error=") != (code != "") ||
		!strings.Contains(challenge, code) {
		t.Errorf("unexpected challenge %s", challenge)
	}
	_, scope, _ := strings.Cut(challenge, `scope="`)
	scope, _, _ = strings.Cut(scope, `"`)
	if !slices.Equal(sorted(strings.Fields(scope)), []string{harness.ReadProgrammes}) {
		t.Errorf("the challenge does not name the useful scopes: %s", challenge)
	}
}

// Nothing is stored between requests, so any process can serve any of them.
func TestMCP_HasNoSession(t *testing.T) {
	p := inParallel(t)
	api := mcp(p, p.Demo.Tokens.Owner)
	rpc(t, api, "initialize", initialize).Wants(t, http.StatusOK).WantsHeader(t, "Mcp-Session-Id", "").
		WantsHeader(t, "Cache-Control", "no-store")
	rpc(t, api.With("Mcp-Session-Id", "of another process"), "tools/list", nil).Wants(t, http.StatusOK)
}

// "nothing on these paths redirects", and pages may read them with the headers that MCP clients add.
func TestMCP_DiscoveryAllowsCORSWithoutRedirect(t *testing.T) {
	p := inParallel(t)
	page := p.API().With("Origin", "https://inspector.example")
	for _, path := range []string{
		"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp",
		"/.well-known/oauth-protected-resource/v1", "/mcp/.well-known/oauth-protected-resource",
		"/.well-known/oauth-authorization-server", "/.well-known/oauth-authorization-server/mcp",
		"/.well-known/openid-configuration", "/.well-known/openid-configuration/mcp",
		"/mcp/.well-known/oauth-authorization-server", "/mcp/.well-known/openid-configuration",
		"/v1/account/oauth/jwks",
	} {
		page.Get(t, path).Wants(t, http.StatusOK).WantsHeader(t, "Access-Control-Allow-Origin", "*").
			WantsHeader(t, "Location", "")
		preflight := page.With("Access-Control-Request-Method", "GET").
			With("Access-Control-Request-Headers", "mcp-protocol-version").
			Send(t, http.MethodOptions, path, "", "")
		if preflight.Status != http.StatusNoContent && preflight.Status != http.StatusOK ||
			preflight.Header.Get("Access-Control-Allow-Origin") != "*" ||
			preflight.Header.Get("Access-Control-Allow-Headers") == "" {
			t.Errorf("%s %v", preflight, preflight.Header)
		}
	}
	// A client that runs in a page exchanges its code itself.
	for _, path := range []string{harness.TokenPath, "/token", "/v1/account/oauth/revoke"} {
		page.Form(t, path, url.Values{"grant_type": {"refresh_token"}}).Wants(t, http.StatusBadRequest).
			WantsHeader(t, "Access-Control-Allow-Origin", "*").
			WantsHeader(t, "Access-Control-Allow-Credentials", "")
		preflight := page.With("Access-Control-Request-Method", "POST").
			With("Access-Control-Request-Headers", "content-type").
			Send(t, http.MethodOptions, path, "", "")
		if preflight.Status != http.StatusNoContent || preflight.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s %v", preflight, preflight.Header)
		}
		wantsAllow(t, p.API().Send(t, http.MethodOptions, path, "", "").Wants(t, http.StatusMethodNotAllowed), "POST")
	}
}

// "All users of one platform share one address range": invalid requests of some users do not affect others.
func TestMCP_SharedAddressIsNotThrottled(t *testing.T) {
	p, ws := inWorkspace(t)
	connector := ws.ConnectorFor(t, p.BaseURL+"/mcp", harness.ReadProgrammes)
	tokens := connector.Connect(t, p.Person(t, ws.Owner))
	for range 150 {
		connector.Refresh(t, "alm_rt_"+strings.Repeat("x", 60)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		wantsChallenge(t, p, rpc(t, mcp(p, "nonsense"), "initialize", initialize), "invalid_token")
	}
	testkit.Quick(t, 10*time.Second, func() {
		tokens = connector.Refresh(t, tokens.RefreshToken).Tokens(t)
		rpc(t, mcp(p, tokens.AccessToken), "initialize", initialize).Wants(t, http.StatusOK)
	})
}

// "/mcp/ is answered like /mcp; its name is the one without the slash"
func TestMCP_PathWithSlashIsAnsweredAlike(t *testing.T) {
	p, ws := inWorkspace(t)
	list := map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
	plain := mcp(p, ws.Token).JSON(t, http.MethodPost, mcpPath, list).Wants(t, http.StatusOK)
	slash := mcp(p, ws.Token).JSON(t, http.MethodPost, mcpPath+"/", list).Wants(t, http.StatusOK)
	if string(plain.Body) != string(slash.Body) {
		t.Errorf("the answers differ:\n%s\n%s", plain, slash)
	}
	wantsChallenge(t, p, mcp(p, "").JSON(t, http.MethodPost, mcpPath+"/", list), "")
	wantsChallenge(t, p, mcp(p, "").Get(t, mcpPath+"/"), "")
	mcp(p, ws.Token).Get(t, mcpPath+"/").WantsNested(t, http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
	mcp(p, ws.Token).JSON(t, http.MethodPost, mcpPath+"//", list).WantsNested(t, http.StatusNotFound, "NOT_FOUND")
}

// clientWithin is the time limit of the client.
const clientWithin = 10 * time.Minute

// A nodeClient is a running mcpclient/flow.mjs.
type nodeClient struct {
	t     *testing.T
	say   io.Writer
	hear  *bufio.Scanner
	wrong *strings.Builder
}

// installed installs the SDK in a directory together with the client. The test is skipped if Node or its packages are
// not available.
func installed(t *testing.T) string {
	t.Helper()
	if major := nodeMajor(t); major < 18 {
		t.Skipf("Node 18 or newer is needed, and this is %d", major)
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "flow.mjs"), fileContent(t, filepath.Join("mcpclient", "flow.mjs")), 0o600))
	must(t, os.Symlink(filepath.Join(packagesOf(t, "mcpclient"), "node_modules"), filepath.Join(dir, "node_modules")))
	return dir
}

func (p *nodeClient) sees(into any) {
	p.t.Helper()
	if !p.hear.Scan() {
		p.t.Fatalf("the client stopped: %s", harness.Redact(p.wrong.String()))
	}
	if err := json.Unmarshal(p.hear.Bytes(), into); err != nil {
		p.t.Fatalf("the client's output is not JSON: %s", harness.Redact(p.hear.Text()))
	}
}

func (p *nodeClient) tell(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.say, line+"\n"); err != nil {
		p.t.Fatalf("the client stopped: %s", harness.Redact(p.wrong.String()))
	}
}

func startNode(t *testing.T, dir string, arguments ...string) *nodeClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), clientWithin)
	command := exec.CommandContext(ctx, "node", append([]string{"flow.mjs"}, arguments...)...)
	command.Dir = dir
	p := &nodeClient{t: t, wrong: &strings.Builder{}}
	command.Stderr = p.wrong
	in, err := command.StdinPipe()
	must(t, err)
	out, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	t.Cleanup(func() {
		_ = in.Close()
		cancel()
		_ = command.Wait()
	})
	p.say, p.hear = in, bufio.NewScanner(out)
	return p
}

// The SDK that Claude Code, the MCP inspector and many hosts use.
func TestMCP_TypeScriptSDKClient(t *testing.T) {
	t.Parallel()
	dir := installed(t)
	p := enter(t)
	ws := p.NewWorkspace(t)
	person := p.Person(t, ws.Owner)
	connector := ws.ConnectorFor(t, p.BaseURL+"/mcp", harness.ReadProgrammes)
	for _, name := range []string{"Lunch club", "Debt advice", "Warm rooms"} {
		p.In(ws.Workspace, ws.Token).JSON(t, http.MethodPost, programmes, map[string]any{"name": name}).
			Wants(t, http.StatusCreated)
	}
	client := startNode(t, dir, p.BaseURL+"/mcp", connector.ClientID, connector.RedirectURI, p.BaseURL)

	var asked struct {
		Authorize string
		Kept      bool
	}
	client.sees(&asked)
	if !strings.HasPrefix(asked.Authorize, p.AppURL+"/oauth/authorize?") {
		t.Fatalf("the client did not get the URL of the consent page: %s", asked.Authorize)
	}
	callback := person.Arrive(t, asked.Authorize).Press(t, "approve").Callback(t)
	client.tell(callback.URI + "?" + callback.Raw)

	sees := func(refreshed bool) {
		t.Helper()
		var seen struct {
			Tools, Programmes []string
			Workspace         string
			Refreshed         bool
		}
		client.sees(&seen)
		if !slices.Equal(seen.Tools, []string{"get_programme", "list_programmes", "whoami"}) ||
			seen.Workspace != ws.Workspace.Name ||
			!slices.Equal(seen.Programmes, []string{"Warm rooms", "Debt advice", "Lunch club"}) ||
			seen.Refreshed != refreshed {
			t.Errorf("unexpected result %+v", seen)
		}
	}
	sees(false)
	client.tell("again")
	sees(false)
	client.tell("expire")
	sees(true)

	// The user disconnects. The client's refresh is rejected, so it drops its tokens and starts a new
	// authorization.
	p.Database.Exec(t,
		`update account.grants set state = 'revoked', revoked_at = now(), revoke_reason = 'revoked_by_user'
				where client_id = $1`, connector.ClientID)
	client.tell("again")
	client.sees(&asked)
	if asked.Authorize == "" || asked.Kept {
		t.Errorf("authorization URL missing or tokens not dropped after revocation: %v", asked.Kept)
	}
}
