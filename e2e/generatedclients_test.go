package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

// generateWithin is the time limit of each step of a generated client: on a busy machine, the first compilation takes
// minutes.
const generateWithin = 15 * time.Minute

// librariesPage is the page "Libraries and clients".
const librariesPage = "../deploy/docs/libraries.md"

// generatedClients returns a copy of the folder.
func generatedClients(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("generatedclients")))
	return dir
}

// generate runs a block of the page in a folder.
func generate(t *testing.T, p *harness.Product, dir, block string) {
	t.Helper()
	page, err := os.ReadFile(librariesPage)
	must(t, err)
	_, lines, found := strings.Cut(string(page), "```sh run="+block+"\n")
	if lines, _, _ = strings.Cut(lines, "```"); !found {
		t.Fatalf("the page has no block %s", block)
	}
	step(t, dir, "", "bash", "-euc", "API='"+p.BaseURL+"'\n"+lines)
}

// F84: the page lists what the tests run, and the messages that name it are explained there.
func TestLibraries_PageHasWhatTestsRun(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(librariesPage)
	must(t, err)
	var tests strings.Builder
	files, err := filepath.Glob("*_test.go")
	must(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		must(t, err)
		tests.Write(content)
	}
	listed := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(page), -1)
	for _, name := range listed {
		if !strings.Contains(tests.String(), "func "+name[1]+"(t *testing.T)") {
			t.Errorf("the page names %s, which does not exist", name[1])
		}
	}
	if len(listed) < 6 {
		t.Errorf("only %d tests are listed", len(listed))
	}
	p := enter(t)
	request := p.DemoConnector().Begin().Query
	for _, missing := range []string{"state", "resource", "code_challenge"} {
		page := p.Person(t, p.Demo.Users.Owner).
			Arrive(t, p.AppURL+"/oauth/authorize?"+change(request, missing).Encode())
		said := page.Callback(t).Values.Get("error_description")
		if !strings.HasPrefix(said, missing) || !strings.HasSuffix(said, "(deploy/docs/libraries.md).") {
			t.Errorf("without %s: %q", missing, said)
		}
	}
	for _, heading := range []string{"state", "resource", "https", "code_verifier"} {
		if !strings.Contains(string(page), "\n### "+heading+"\n") {
			t.Errorf("the page has no heading %s", heading)
		}
	}
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
	dir := generatedClients(t)
	generate(t, p, dir, "go")
	step(t, dir, "", "go", "test", "-c", "-o", "clients.test", ".")
	step(t, dir, ws.Token, "./clients.test", p.BaseURL, ws.Workspace.ID)
}

func TestGeneratedClients_TypeScriptCompilesAndCalls(t *testing.T) {
	t.Parallel()
	if major := nodeMajor(t); major < 20 {
		t.Skipf("Node 20 or newer is needed, and this is %d", major)
	}
	p := enter(t)
	ws := p.NewWorkspace(t)
	dir := generatedClients(t)
	modules := filepath.Join(packagesOf(t, "generatedclients"), "node_modules")
	must(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	generate(t, p, dir, "typescript")
	step(t, dir, "", "node", "node_modules/typescript/bin/tsc", "-p", ".")
	step(t, dir, ws.Token, "node", "client.js", p.BaseURL, ws.Workspace.ID)
}
