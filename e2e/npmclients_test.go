package e2e

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

// The command-line clients of assistants, unmodified, sign in and call the MCP endpoint, with the lines of the page
// "Libraries and clients". No model is needed for it.

const (
	npmClientsFolder = "npmclients"
	npmClientWithin  = 5 * time.Minute // of each command
)

// authorizeURL finds the address that a client prints for the browser.
var authorizeURL = regexp.MustCompile(`http://[^\s"/]+/oauth/authorize\?[^\s"'\x1b\x07]+`)

// An npmClient is a program with its own home directory, a client id, and a callback at a fixed port.
type npmClient struct {
	t      *testing.T
	person *harness.Person
	home   string
	env    []string
	page   *strings.Replacer // replaces the example's values on the page
}

// newNpmClient registers an application with a loopback callback at port 8765, as on the page, which stands for a free
// port. The program gets its name from the page.
func newNpmClient(t *testing.T, callback, name string, program ...string) *npmClient {
	t.Helper()
	p := enter(t)
	ws := p.NewWorkspace(t)
	port := freePort(t)
	body := harness.ConnectorBody(p.BaseURL+"/mcp", harness.ReadProgrammes)
	body["redirectUris"] = []string{strings.Replace(callback, "8765", port, 1)}
	object := ws.Register(t, body).Wants(t, http.StatusCreated).Object(t)
	id, _ := object["clientId"].(string)
	c := &npmClient{t: t, person: p.Person(t, ws.Owner), home: t.TempDir(),
		page: strings.NewReplacer("https://api.example.org", p.BaseURL, "8765", port, "CLIENT_ID", id)}
	c.write("bin/"+name, "#!/bin/sh\nexec '"+strings.Join(program, "' '")+"' \"$@\"\n")
	must(t, os.Chmod(filepath.Join(c.home, "bin", name), 0o700))
	// The programs may reach this machine alone: no updates, no statistics.
	c.env = []string{
		"HOME=" + c.home, "PATH=" + filepath.Join(c.home, "bin") + ":" + os.Getenv("PATH"),
		"TERM=dumb", "NO_COLOR=1", "CI=1",
		"HTTP_PROXY=http://127.0.0.1:9", "HTTPS_PROXY=http://127.0.0.1:9", "NO_PROXY=127.0.0.1,localhost",
		"DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
	}
	return c
}

// npmProgram returns the path of a file in the npm packages. The test is skipped if the file is not there: some
// programs exist for some machines only.
func npmProgram(t *testing.T, names ...string) string {
	t.Helper()
	if major := nodeMajor(t); major < 18 {
		t.Skipf("npm of Node 18 or newer is needed, and this is %d", major)
	}
	for _, name := range names {
		program := filepath.Join(packagesOf(t, npmClientsFolder), "node_modules", name)
		if _, err := os.Stat(program); err == nil {
			must(t, os.Chmod(program, 0o755))
			return program
		}
	}
	t.Skipf("there is no %s for this machine", names[0])
	return ""
}

// block returns a block of the page with this client's values.
func (c *npmClient) block(name string) string {
	c.t.Helper()
	return c.page.Replace(pageBlock(c.t, name))
}

// write writes a file of the home directory.
func (c *npmClient) write(name, content string) {
	c.t.Helper()
	path := filepath.Join(c.home, name)
	must(c.t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(c.t, os.WriteFile(path, []byte(content), 0o600))
}

func (c *npmClient) command(program string, arguments ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(c.t.Context(), npmClientWithin)
	c.t.Cleanup(cancel)
	command := exec.CommandContext(ctx, program, arguments...)
	command.Dir, command.Env, command.WaitDelay = c.home, c.env, time.Second
	return command
}

// wants runs a line of shell, and checks what it prints.
func (c *npmClient) wants(line, printed string) {
	c.t.Helper()
	out, err := c.command("bash", "-euc", line).CombinedOutput()
	if err != nil || !strings.Contains(string(out), printed) {
		c.t.Fatalf("%s: %v, want %q\n%s", line, err, printed, harness.Redact(string(out)))
	}
}

// signIn runs lines of shell in a terminal, approves in the browser, and leads the browser back to the client.
func (c *npmClient) signIn(lines string) {
	c.t.Helper()
	c.write("sign-in.sh", "set -eu\nstty cols 4000\n"+lines)
	command := c.command("script", "-qec", "bash sign-in.sh", "/dev/null") // a terminal, of util-linux
	in, err := command.StdinPipe()                                         // some programs end with their input
	must(c.t, err)
	defer func() { _ = in.Close() }()
	read, write := io.Pipe()
	command.Stdout, command.Stderr = write, write
	must(c.t, command.Start())
	ended := make(chan error, 1)
	go func() {
		ended <- command.Wait()
		_ = write.Close()
	}()
	var printed strings.Builder
	for output := bufio.NewScanner(read); output.Scan(); {
		printed.WriteString(output.Text() + "\n")
		address := authorizeURL.FindString(output.Text())
		if address == "" {
			continue
		}
		go func() { _, _ = io.Copy(io.Discard, read) }()
		callback := c.person.Arrive(c.t, address).Press(c.t, "approve").Callback(c.t)
		answer, err := http.Get(callback.URI + "?" + callback.Raw)
		must(c.t, err)
		_ = answer.Body.Close()
		if answer.StatusCode >= http.StatusBadRequest {
			c.t.Fatalf("the client's callback returned %d", answer.StatusCode)
		}
		break
	}
	if err := <-ended; err != nil {
		c.t.Fatalf("%v\n%s", err, harness.Redact(printed.String()))
	}
}

func TestNpmClients_ClaudeCode(t *testing.T) {
	t.Parallel()
	c := newNpmClient(t, "http://localhost:8765/callback", "claude", npmProgram(t,
		"@anthropic-ai/claude-code-linux-x64/claude", "@anthropic-ai/claude-code-linux-arm64/claude"))
	c.signIn(strings.TrimSpace(c.block("claude-code")) + " --no-browser\n")
	c.wants("claude mcp list", "Connected")
}

func TestNpmClients_Codex(t *testing.T) {
	t.Parallel()
	c := newNpmClient(t, "http://127.0.0.1:8765/callback", "codex", npmProgram(t,
		"@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
		"@openai/codex-linux-arm64/vendor/aarch64-unknown-linux-musl/bin/codex"))
	const withoutKeyring = "mcp_oauth_credentials_store = \"file\"\n"
	c.write(".codex/config.toml", c.block("codex.toml")+withoutKeyring)
	c.signIn(c.block("codex"))
	c.wants("codex mcp list --json", "o_auth")
}

func TestNpmClients_OpenCode(t *testing.T) {
	t.Parallel()
	c := newNpmClient(t, "http://127.0.0.1:8765/mcp/oauth/callback", "opencode", npmProgram(t,
		"opencode-linux-x64/bin/opencode"))
	c.write(".config/opencode/opencode.json", c.block("opencode.json"))
	c.signIn(c.block("opencode"))
	c.wants("opencode mcp list", "connected")
}

func TestNpmClients_MCPorter(t *testing.T) {
	t.Parallel()
	cli := npmProgram(t, "mcporter/dist/cli.js")
	node := nodeAtLeast(t, 24, filepath.Join(conformanceFolder, "node"))
	c := newNpmClient(t, "http://127.0.0.1:8765/callback", "mcporter", node, cli)
	c.write("config/mcporter.json", c.block("mcporter.json"))
	c.signIn(strings.TrimSpace(c.block("mcporter")) + " --no-browser\n")
	c.wants("mcporter call almoner.whoami --output json", "workspace")
}
