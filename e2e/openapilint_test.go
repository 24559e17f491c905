package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

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
		content := fileContent(t, filepath.Join(lintFolder, from))
		must(t, os.WriteFile(filepath.Join(dir, to), content, 0o600))
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
	out, failed := lint(t, "@stoplight/spectral-cli/dist/index.js", rules,
		"--format=json", "--fail-severity=hint", "--quiet")
	var findings []struct {
		Code, Message string
		Path          []any
	}
	if err := json.Unmarshal(out, &findings); err != nil {
		t.Fatalf("the linter's output: %v, %v", err, failed)
	}
	for _, finding := range findings {
		t.Errorf("%s: %s %v", finding.Code, finding.Message, finding.Path)
	}
	if failed != nil {
		t.Error(failed)
	}
}
