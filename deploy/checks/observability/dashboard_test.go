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

// variable is one of Grafana's, like $__rate_interval, ${source} or [[source]].
var variable = regexp.MustCompile(`\$\{?\w+\}?|\[\[\w+\]\]`)

// A panel is one of a dashboard, which may hold others.
type panel struct {
	Title   string
	Targets []struct{ Expr string }
	Panels  []panel
}

// expressions are what panels ask of Prometheus, with a time in place of every variable.
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

func TestPrometheusUnderstandsWhatTheDashboardAsks(t *testing.T) {
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
		t.Fatalf("%d expressions are found, of %d", len(asked), written)
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
