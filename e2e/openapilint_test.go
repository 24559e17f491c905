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

// TestOpenAPI_LinterHasNoWarnings runs Redocly's linter, with its recommended rules, on the document that the service
// returns.
func TestOpenAPI_LinterHasNoWarnings(t *testing.T) {
	t.Parallel()
	node := nodeAtLeast(t, conformanceNode, filepath.Join(conformanceFolder, "node"))
	program := filepath.Join(packagesOf(t, lintFolder), "node_modules", "@redocly", "cli", "bin", "cli.js")
	dir := t.TempDir()
	document := enter(t).API().Get(t, "/v1/openapi.json")
	must(t, os.WriteFile(filepath.Join(dir, "openapi.json"), document.Body, 0o600))
	for from, to := range map[string]string{
		"redocly.yaml":     "redocly.yaml",
		"lint-ignore.yaml": ".redocly.lint-ignore.yaml", // beside the document
	} {
		content, err := os.ReadFile(filepath.Join(lintFolder, from))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, to), content, 0o600))
	}
	ctx, cancel := context.WithTimeout(t.Context(), lintWithin)
	defer cancel()
	command := exec.CommandContext(ctx, node, program, "lint", "openapi.json", "--format=json")
	command.Dir = dir
	command.WaitDelay = time.Second
	command.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	out, failed := command.Output() // it fails if there are errors
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
