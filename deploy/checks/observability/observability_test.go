// Package observability tests the alert rules, the dashboard and the example configuration of Prometheus.
package observability

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
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

// variable matches a variable of Grafana, such as $__rate_interval, ${source} or [[source]].
var variable = regexp.MustCompile(`\$\{?\w+\}?|\[\[\w+\]\]`)

// A panel is a panel of a dashboard, which may hold other panels.
type panel struct {
	Title   string
	Targets []struct{ Expr string }
	Panels  []panel
}

// expressions returns the panels' queries, with a duration in place of every variable.
func expressions(panels []panel) []string {
	var all []string
	for _, p := range panels {
		for _, target := range p.Targets {
			all = append(all, variable.ReplaceAllString(target.Expr, "5m"))
		}
		all = append(all, expressions(p.Panels)...)
	}
	return all
}

func TestDashboard_ExpressionsAreValid(t *testing.T) {
	t.Parallel()
	tool := promtool(t)
	content, err := os.ReadFile(filepath.Join(folder, "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal(content, &dashboard); err != nil {
		t.Fatal(err)
	}
	asked := expressions(dashboard.Panels)
	if written := strings.Count(string(content), `"expr":`); len(asked) == 0 || len(asked) != written {
		t.Fatalf("found %d of %d expressions", len(asked), written)
	}
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	for i, expression := range asked {
		rules = append(rules, rule{fmt.Sprint("asked:", i), expression})
	}
	type group struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	}
	file := filepath.Join(t.TempDir(), "rules.yaml") // JSON is YAML
	encoded, err := json.Marshal(map[string][]group{"groups": {{"dashboard", rules}}})
	if err == nil {
		err = os.WriteFile(file, encoded, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), tool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
