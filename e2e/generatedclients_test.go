package e2e

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
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

// pageBlock returns a block of the page.
func pageBlock(t *testing.T, name string) string {
	t.Helper()
	page := fileContent(t, librariesPage)
	_, block, found := strings.Cut(string(page), " run="+name+"\n")
	if block, _, _ = strings.Cut(block, "```"); !found {
		t.Fatalf("the page has no block %s", name)
	}
	return block
}

// generate runs a block of the page in a copy of the folder, which it returns. The description is the one that the
// product serves, with the URL of the page's example in place of the product's: so the code that is generated is the
// same in each run, and Go's build cache has it.
func generate(t *testing.T, p *harness.Product, block string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("generatedclients")))
	const path = "/v1/openapi.json"
	description := p.API().Get(t, path).Wants(t, http.StatusOK).Body
	example := bytes.ReplaceAll(description, []byte(p.BaseURL), []byte("https://api.example.org"))
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			t.Errorf("the page requests %s", r.URL.Path)
		}
		_, _ = w.Write(example)
	}))
	t.Cleanup(site.Close)
	if block == "typescript" {
		modules := filepath.Join(packagesOf(t, "generatedclients"), "node_modules")
		must(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	}
	step(t, dir, "", "bash", "-euc", "API='"+site.URL+"'\n"+pageBlock(t, block))
	return dir
}

// F84: the page lists what the tests run, and the messages that name it are explained there.
func TestLibraries_PageHasWhatTestsRun(t *testing.T) {
	t.Parallel()
	page := fileContent(t, librariesPage)
	var tests strings.Builder
	files, err := filepath.Glob("*_test.go")
	must(t, err)
	for _, file := range files {
		content := fileContent(t, file)
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
	p, ws := inWorkspace(t)
	dir := generate(t, p, "go")
	step(t, dir, "", "go", "test", "-trimpath", "-c", "-o", "clients.test", ".") // without the folder in its packages
	step(t, dir, ws.Token, "./clients.test", p.BaseURL, ws.Workspace.ID)
}

func TestGeneratedClients_TypeScriptCompilesAndCalls(t *testing.T) {
	t.Parallel()
	if major := nodeMajor(t); major < 20 {
		t.Skipf("Node 20 or newer is needed, and this is %d", major)
	}
	p := enter(t)
	ws := p.NewWorkspace(t)
	dir := generate(t, p, "typescript")
	// The compiler checks no declarations of libraries, which takes long. What was generated is checked as source.
	must(t, os.Rename(filepath.Join(dir, "api.d.ts"), filepath.Join(dir, "api.ts")))
	step(t, dir, "", "node", "node_modules/typescript/bin/tsc", "-p", ".")
	step(t, dir, ws.Token, "node", "client.js", p.BaseURL, ws.Workspace.ID)
}
