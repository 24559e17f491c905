package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

// generateWithin is the time limit of each step of a generated client: on a busy machine, the first compilation takes
// minutes.
const generateWithin = 15 * time.Minute

// generatedClients returns a copy of a folder's files beside the description that the product serves.
func generatedClients(t *testing.T, p *harness.Product) string {
	t.Helper()
	const folder = "generatedclients"
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS(folder)))
	document := p.API().Get(t, "/v1/openapi.json")
	must(t, os.WriteFile(filepath.Join(dir, "openapi.json"), document.Body, 0o600))
	return dir
}

// step runs a program in a folder, with a personal access token as its input.
func step(t *testing.T, dir, token, name string, arguments ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), generateWithin)
	defer cancel()
	command := exec.CommandContext(ctx, name, arguments...)
	command.Dir = dir
	command.WaitDelay = time.Second
	command.Env = append(os.Environ(), "GOWORK=off")
	command.Stdin = strings.NewReader(token)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(arguments, " "), err, harness.Redact(string(out)))
	}
}

// F82: clients that common generators make from the description compile and call, and neither is changed by hand.
func TestGeneratedClients_GoCompilesAndCalls(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	dir := generatedClients(t, p)
	must(t, os.Mkdir(filepath.Join(dir, "oapi"), 0o755))
	step(t, dir, "", "go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "oapi",
		"-o", "oapi/api.go", "openapi.json")
	step(t, dir, "", "go", "tool", "ogen", "-config", "ogen.yml", "-package", "ogen", "-target", "ogen", "openapi.json")
	step(t, dir, ws.Token, "go", "run", ".", p.BaseURL, ws.Workspace.ID)
}

func TestGeneratedClients_TypeScriptCompilesAndCalls(t *testing.T) {
	t.Parallel()
	if major := nodeMajor(t); major < 20 {
		t.Skipf("Node 20 or newer is needed, and this is %d", major)
	}
	p := enter(t)
	ws := p.NewWorkspace(t)
	dir := generatedClients(t, p)
	modules := filepath.Join(packagesOf(t, "generatedclients"), "node_modules")
	must(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	step(t, dir, "", "node", "node_modules/openapi-typescript/bin/cli.js", "openapi.json", "-o", "api.d.ts")
	step(t, dir, "", "node", "node_modules/typescript/bin/tsc", "-p", ".")
	step(t, dir, ws.Token, "node", "client.js", p.BaseURL, ws.Workspace.ID)
}
