package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

// nodeMajor returns the major version of the installed Node. The test is skipped without Node and npm.
func nodeMajor(t *testing.T) int {
	t.Helper()
	version, err := exec.CommandContext(t.Context(), "node", "--version").Output()
	if err != nil {
		t.Skip("Node is not installed")
	}
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is not installed")
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(version)), "v"), ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		t.Skipf("node --version printed no version: %s", version)
	}
	return n
}

// packagesOf installs the packages of a folder with a package.json and a lock file, and returns the directory of
// node_modules. They stay in the user's cache, and nothing writes to them there. The test is skipped if they cannot be
// loaded.
func packagesOf(t *testing.T, folder string) string {
	t.Helper()
	once, _ := installations.LoadOrStore(folder, sync.OnceValues(func() (string, error) { return install(folder) }))
	dir, err := once.(func() (string, error))()
	if errors.Is(err, errNotLoaded) {
		t.Skip(err)
	}
	must(t, err)
	return dir
}

// installations are the results of install in this process, by folder.
var installations sync.Map

var errNotLoaded = errors.New("the packages could not be loaded")

const (
	installWithin = 10 * time.Minute
	unusedFor     = 14 * 24 * time.Hour // after which an installation is removed
	installing    = "installing-"       // begins the name of one that is not complete
)

// install returns the directory of an installation of the folder's lock file for this machine. It is complete: it gets
// its name when npm has ended.
func install(folder string) (string, error) {
	home, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	home = filepath.Join(home, "almoner", "npm")
	digest := sha256.New()
	_, _ = fmt.Fprintln(digest, runtime.GOOS, runtime.GOARCH) // never returns an error
	files := map[string][]byte{}
	for _, name := range []string{"package.json", "package-lock.json"} {
		if files[name], err = os.ReadFile(filepath.Join(folder, name)); err != nil {
			return "", err
		}
		_, _ = digest.Write(files[name])
	}
	installed := filepath.Join(home, hex.EncodeToString(digest.Sum(nil))[:16])
	now := time.Now()
	if os.Chtimes(installed, now, now) == nil {
		return installed, nil
	}
	if err := errors.Join(os.MkdirAll(home, 0o755), removeUnused(home)); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(home, installing)
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return "", err
		}
	}
	if err := load(dir); err != nil {
		return "", fmt.Errorf("%s: %w", folder, err)
	}
	if err := os.Rename(dir, installed); err != nil {
		if _, missing := os.Stat(installed); missing != nil { // and no other process has installed it meanwhile
			return "", err
		}
	}
	return installed, nil
}

// load runs npm in a directory.
func load(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), installWithin)
	defer cancel()
	command := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	command.Dir, command.WaitDelay = dir, time.Second
	out, err := command.CombinedOutput()
	if err == nil {
		return nil
	}
	if bytes.Contains(out, []byte("can only install")) || bytes.Contains(out, []byte("EINTEGRITY")) {
		return fmt.Errorf("the lock file does not match package.json:\n%s", out)
	}
	return fmt.Errorf("%w: %w", errNotLoaded, err)
}

// removeUnused removes the installations that no test has used for a long time, and those that were cut off.
func removeUnused(home string) error {
	entries, err := os.ReadDir(home)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		limit := unusedFor
		if strings.HasPrefix(entry.Name(), installing) {
			limit = 2 * installWithin
		}
		info, err := entry.Info()
		if err == nil && time.Since(info.ModTime()) > limit {
			_ = os.RemoveAll(filepath.Join(home, entry.Name())) // or another process does
		}
	}
	return nil
}

// nodeAtLeast returns a Node of at least a major version: the installed one, or one from an npm package.
func nodeAtLeast(t *testing.T, major int, folder string) string {
	t.Helper()
	if nodeMajor(t) >= major {
		return "node"
	}
	architecture := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	program := filepath.Join(packagesOf(t, folder), "node_modules", "node-linux-"+architecture, "bin", "node")
	if _, err := os.Stat(program); err != nil {
		t.Skipf("Node %d or newer is needed, and there is no package for this machine", major)
	}
	return program
}

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
