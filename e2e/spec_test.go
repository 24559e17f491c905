package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that SPEC.md names exists, and every sentence has a test.
func TestSpec_EverySentenceNamesTest(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("SPEC.md")
	must(t, err)
	exists := testsHere(t)
	rows := 0
	for line := range strings.Lines(string(content)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| section ") {
			continue
		}
		rows++
		if len(cells) != 3 {
			t.Errorf("row without three cells: %s", line)
			continue
		}
		names := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(cells[2], -1)
		if len(names) == 0 {
			t.Errorf("no test for: %s", cells[1])
		}
		for _, name := range names {
			if !exists[name[1]] {
				t.Errorf("%s does not exist", name[1])
			}
		}
	}
	if rows < 100 {
		t.Errorf("only %d sentences found", rows)
	}
}

// testsHere returns the names of the tests of this package.
func testsHere(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	must(t, err)
	exists := map[string]bool{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		must(t, err)
		for _, declaration := range file.Decls {
			if f, isFunc := declaration.(*ast.FuncDecl); isFunc && f.Recv == nil &&
				strings.HasPrefix(f.Name.Name, "Test") {
				exists[f.Name.Name] = true
			}
		}
	}
	return exists
}
