package e2e

import (
	"bytes"
	"context"
	"encoding/json"
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
	exists := testsOfTheRepository(t)
	listed := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(page), -1)
	for _, name := range listed {
		if !exists["e2e."+name[1]] {
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

const (
	lintFolder = "openapilint"
	lintWithin = 10 * time.Minute
)

// lint runs a linter, a program of an npm package, in a folder with the document that the service returns and the
// linter's own files, and returns what it prints. The linter fails if it finds something.
func lint(t *testing.T, program string, files map[string]string, arguments ...string) (out []byte, failed error) {
	t.Helper()
	node := nodeAtLeast(t, conformanceNode, filepath.Join(conformanceFolder, "node"))
	program = filepath.Join(packagesOf(t, lintFolder), "node_modules", program)
	dir := t.TempDir()
	document := enter(t).API().Get(t, "/v1/openapi.json")
	must(t, os.WriteFile(filepath.Join(dir, "openapi.json"), document.Body, 0o600))
	for from, to := range files {
		must(t, os.WriteFile(filepath.Join(dir, to), fileContent(t, filepath.Join(lintFolder, from)), 0o600))
	}
	ctx, cancel := context.WithTimeout(t.Context(), lintWithin)
	defer cancel()
	command := exec.CommandContext(ctx, node, append([]string{program, "lint", "openapi.json"}, arguments...)...)
	command.Dir = dir
	command.WaitDelay = time.Second
	command.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	out, failed = command.Output()
	return out, failed
}

// TestOpenAPI_RedoclyHasNoWarnings runs Redocly's linter with its recommended rules.
func TestOpenAPI_RedoclyHasNoWarnings(t *testing.T) {
	t.Parallel()
	out, failed := lint(t, "@redocly/cli/bin/cli.js", map[string]string{
		"redocly.yaml":     "redocly.yaml",
		"lint-ignore.yaml": ".redocly.lint-ignore.yaml", // beside the document
	}, "--format=json")
	var result struct {
		Totals struct {
			Errors, Warnings, Ignored int
		}
		Problems []struct {
			RuleID, Message string
			Location        []struct{ Pointer string }
		}
	}
	if err := json.Unmarshal(out, &result); err != nil {
		t.Fatalf("the linter's output: %v, %v", err, failed)
	}
	for _, problem := range result.Problems {
		t.Errorf("%s: %s %v", problem.RuleID, problem.Message, problem.Location)
	}
	if failed != nil || result.Totals.Errors+result.Totals.Warnings > 0 || result.Totals.Ignored == 0 {
		t.Errorf("%+v, %v", result.Totals, failed)
	}
}

// TestOpenAPI_SpectralHasNoWarnings runs Spectral with its recommended rules.
func TestOpenAPI_SpectralHasNoWarnings(t *testing.T) {
	t.Parallel()
	rules := map[string]string{"spectral.yaml": ".spectral.yaml"}
	out, failed := lint(t, "@stoplight/spectral-cli/dist/index.js", rules, "--fail-severity=hint")
	if failed != nil {
		t.Errorf("%v\n%s", failed, out)
	}
}
