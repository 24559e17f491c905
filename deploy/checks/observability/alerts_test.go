// Package observability tests the alert rules, the dashboard and the example configuration of Prometheus.
package observability

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const folder = "../../observability"

// promtool returns the path of Prometheus' checker, of Debian's package prometheus: installed, or unpacked privately.
func promtool(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	path := filepath.Join(os.Getenv("ALMONER_TEST_TOOLS"), "root", "usr", "bin", "promtool")
	if _, err := os.Stat(path); err != nil {
		t.Skip("promtool is not installed: apt-get install prometheus")
	}
	return path
}

// TestAlerts_RulesAreValidAndFire runs promtool. alerts_test.yaml has example series: each alert fires in its
// example and not just below its threshold.
func TestAlerts_RulesAreValidAndFire(t *testing.T) {
	t.Parallel()
	tool := promtool(t)
	for _, arguments := range [][]string{
		{"check", "rules", "alerts.yaml"}, {"check", "config", "prometheus.yml"}, {"test", "rules", "alerts_test.yaml"},
	} {
		command := exec.CommandContext(t.Context(), tool, arguments...)
		command.Dir = folder
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", arguments, err, out)
		}
	}
}
