package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

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
	content := fileContent(t, filepath.Join("mcpclient", "flow.mjs"))
	must(t, os.WriteFile(filepath.Join(dir, "flow.mjs"), content, 0o600))
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
