package audit_test

import (
	"encoding/csv"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must = testkit.Must

const (
	module     = "../../.." // authserver
	repository = "../../../.."
)

// TestActions_AreNamedOnlyInTheTable requires that no other string in the module is an action of the table.
func TestActions_AreNamedOnlyInTheTable(t *testing.T) {
	t.Parallel()
	var names []string
	for _, d := range audit.Descriptions() {
		names = append(names, d.Action)
	}
	spelled := regexp.MustCompile(`\b(` + strings.ReplaceAll(strings.Join(names, "|"), ".", `\.`) + `)\b`)
	files := 0
	walk(t, module, ".go", func(path, content string) {
		files++
		named := func(name string) bool { return strings.Contains(content, name) }
		if strings.HasSuffix(path, "/account/audit/actions.go") || !slices.ContainsFunc(names, named) {
			return // without the work of parsing it
		}
		for _, text := range literals(t, path, content) {
			if found := spelled.FindString(text); found != "" {
				t.Errorf("%s spells out %s: use the constant of package audit", path, found)
			}
		}
	})
	if files < 200 {
		t.Errorf("only %d files were read", files)
	}
}

// TestActions_ElsewhereAreInTheTable requires that the table has the actions in SQL and in the other modules, which
// cannot use the constants.
func TestActions_ElsewhereAreInTheTable(t *testing.T) {
	t.Parallel()
	nouns := map[string]bool{}
	for _, d := range audit.Descriptions() {
		noun, _, _ := strings.Cut(d.Action, ".")
		nouns[noun] = true
	}
	action := regexp.MustCompile(`'([a-z_]+)\.[a-z_]+'`)
	found := 0
	check := func(path, content string) {
		for _, match := range action.FindAllStringSubmatch(content, -1) {
			name := strings.Trim(match[0], "'")
			if !nouns[match[1]] || slices.Contains(webhook.EventTypes(), name) { // types that integrations read
				continue
			}
			found++
			if _, known := audit.Describe(name); !known {
				t.Errorf("%s: %s is not an action of the table", path, match[0])
			}
		}
	}
	walk(t, module, ".sql", check)
	walk(t, filepath.Join(repository, "deploy"), ".sql", check)
	walk(t, filepath.Join(repository, "e2e"), ".go", check)
	if found < 8 {
		t.Errorf("only %d actions were found", found)
	}
}

// TestActions_EveryConstantIsDescribed requires one description for each constant.
func TestActions_EveryConstantIsDescribed(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("actions.go")
	must(t, err)
	described := map[string]bool{}
	for _, d := range audit.Descriptions() {
		if described[d.Action] || d.Text == "" {
			t.Errorf("%s is described twice, or has no text", d.Action)
		}
		described[d.Action] = true
	}
	constants := literals(t, "actions.go", string(content))
	for _, one := range constants {
		if !described[one] {
			t.Errorf("%s has no description", one)
		}
	}
	if len(constants) != len(described) {
		t.Errorf("%d constants, %d descriptions", len(constants), len(described))
	}
}

// TestActions_AreDocumented requires that AUDIT.md and AUDIT.csv have the table. Run it with
// ALMONER_WRITE_AUDIT=1 to write the files.
func TestActions_AreDocumented(t *testing.T) {
	t.Parallel()
	const first, last = "<!-- actions: written by TestActions_AreDocumented -->\n", "<!-- end of actions -->"
	path := filepath.Join(module, "AUDIT.md")
	content, err := os.ReadFile(path)
	must(t, err)
	before, rest, found := strings.Cut(string(content), first)
	_, after, ended := strings.Cut(rest, last)
	if !found || !ended {
		t.Fatal("AUDIT.md has no place for the table")
	}
	table := "| action | meaning |\n|---|---|\n"
	var sheet strings.Builder
	rows := csv.NewWriter(&sheet)
	_ = rows.Write([]string{"action", "meaning"}) // into memory, as below
	for _, d := range audit.Descriptions() {
		meaning := d.Meaning
		if meaning == "" {
			meaning = d.Text
		}
		_ = rows.Write([]string{d.Action, strings.TrimSuffix(meaning, ".")})
		table += "| `" + d.Action + "` | " + strings.TrimSuffix(meaning, ".") + " |\n"
	}
	rows.Flush()
	for path, want := range map[string]string{
		path:                               before + first + table + last + after,
		filepath.Join(module, "AUDIT.csv"): sheet.String(),
	} {
		if os.Getenv("ALMONER_WRITE_AUDIT") != "" {
			must(t, os.WriteFile(path, []byte(want), 0o600))
		}
		if written, err := os.ReadFile(path); err != nil || string(written) != want {
			t.Errorf("%s is out of date, %v: run ALMONER_WRITE_AUDIT=1 go test ./authserver/internal/account/audit",
				filepath.Base(path), err)
		}
	}
}

// walk calls read for every file below root whose name ends in extension.
func walk(t *testing.T, root, extension string, read func(path, content string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, extension) {
			return err
		}
		content, err := os.ReadFile(path)
		read(filepath.ToSlash(path), string(content))
		return err
	})
	must(t, err)
}

// literals returns the strings in a Go file, without its imports.
func literals(t *testing.T, path, content string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, content, parser.SkipObjectResolution)
	must(t, err)
	var out []string
	ast.Inspect(file, func(node ast.Node) bool {
		if _, isImport := node.(*ast.ImportSpec); isImport {
			return false
		}
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				out = append(out, text)
			}
		}
		return true
	})
	return out
}
