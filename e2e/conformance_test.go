package e2e

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// The public conformance suite of the Model Context Protocol (@modelcontextprotocol/conformance), run against the
// real server.

const (
	conformanceFolder = "conformance"
	conformanceNode   = 22 // the oldest supported major version
	conformanceWithin = 10 * time.Minute
)

// revisions are the protocol revisions that the suite runs for.
var revisions = []string{"2025-11-25", "2026-07-28"}

// conformance returns the command of a run of the suite. The test is skipped if Node cannot run it.
func conformance(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	node := nodeAtLeast(t, conformanceNode, filepath.Join(conformanceFolder, "node"))
	program := filepath.Join(packagesOf(t, conformanceFolder), "node_modules", "@modelcontextprotocol", "conformance",
		"dist", "index.js")
	ctx, cancel := context.WithTimeout(t.Context(), conformanceWithin)
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, node, append([]string{program}, arguments...)...)
	command.Dir = t.TempDir()
	command.WaitDelay = time.Second
	return command
}

// withBearer returns a URL that proxies to the MCP endpoint with a credential, because the suite cannot send one.
func withBearer(t *testing.T, p *harness.Product, token string) string {
	t.Helper()
	target, err := url.Parse(p.BaseURL)
	must(t, err)
	rewrite := func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // the suite sends invented ones
		r.Out.Header.Set("Authorization", "Bearer "+token)
	}
	// The suite cancels some requests. The errors of these are not logged.
	server := httptest.NewServer(&httputil.ReverseProxy{Rewrite: rewrite, ErrorLog: log.New(io.Discard, "", 0)})
	t.Cleanup(server.Close)
	return server.URL + mcpPath
}

// The file of expected failures lists only checks for fixtures of the suite that the product does not have.
func TestConformance_Server(t *testing.T) {
	expected, err := filepath.Abs(filepath.Join(conformanceFolder, "expected-failures.yaml"))
	must(t, err)
	p, ws := inWorkspace(t)
	address := withBearer(t, p, ws.Token)
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			out, err := conformance(t, "server", "--url", address, "--suite", "all", "--spec-version", revision,
				"--expected-failures", expected).CombinedOutput()
			if err != nil {
				_, summary, _ := strings.Cut(string(out), "=== SUMMARY ===")
				t.Errorf("%v\n%s", err, harness.Redact(summary))
			}
			if !bytes.Contains(out, []byte("tools-list: ")) {
				t.Errorf("the suite ran no check:\n%s", harness.Redact(string(out)))
			}
		})
	}
}

func TestConformance_ExpectedFailuresNameFixture(t *testing.T) {
	t.Parallel()
	content := fileContent(t, filepath.Join(conformanceFolder, "expected-failures.yaml"))
	named := regexp.MustCompile(
		` # (test_|test://|json_schema_|the capability |a tool with x-mcp-header|a session$)`)
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, "  - ") && !named.MatchString(strings.TrimSpace(line)) {
			t.Errorf("no fixture of the suite: %s", line)
		}
	}
}

// The suite's scenario for authorization servers: the metadata, then a code grant with a user at the browser.
func TestConformance_Authorization(t *testing.T) {
	p, ws := inWorkspace(t)
	person := p.Person(t, ws.Owner)
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			port := freePort(t)
			body := harness.ConnectorBody(p.BaseURL+"/mcp", harness.ReadProgrammes)
			body["redirectUris"] = []string{"http://127.0.0.1:" + port + "/callback"}
			id, _ := ws.Register(t, body).Wants(t, http.StatusCreated).Object(t)["clientId"].(string)
			command := conformance(t, "authorization", "--url", p.BaseURL, "--client-id", id, "--resource",
				p.BaseURL+"/mcp", "--port", port, "--spec-version", revision)
			output, err := command.StdoutPipe()
			must(t, err)
			command.Stderr = os.Stderr
			must(t, command.Start())
			consented, summary := false, &strings.Builder{}
			for lines := bufio.NewScanner(output); lines.Scan(); {
				line := strings.TrimSpace(lines.Text())
				if strings.HasPrefix(line, p.AppURL+"/oauth/authorize?") {
					callback := person.Arrive(t, line).Press(t, "approve").Callback(t)
					follow(t, callback.URI+"?"+callback.Raw)
					consented = true
				}
				_, _ = summary.WriteString(line + "\n") // never returns an error
			}
			if err := command.Wait(); err != nil || !consented {
				t.Errorf("consented: %t, %v\n%s", consented, err, harness.Redact(summary.String()))
			}
		})
	}
}

// follow opens the suite's callback, which listens on this machine.
func follow(t *testing.T, address string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	must(t, err)
	await.True(t, "the callback responds", func() bool {
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		return err == nil // the error contains the code
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	port, err := localstore.FreePort()
	must(t, err)
	return strconv.Itoa(port)
}
