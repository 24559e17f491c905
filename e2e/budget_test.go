package e2e

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// size is how much Go a part of the repository has, without tests.
type size struct{ lines, files, packages int }

// sizeOf counts the Go of a folder.
func sizeOf(t *testing.T, folder string) size {
	t.Helper()
	var total size
	packages := map[string]bool{}
	must(t, filepath.WalkDir(filepath.Join("..", folder), func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		content, err := os.ReadFile(name)
		total.lines += bytes.Count(content, []byte("\n"))
		total.files++
		packages[filepath.Dir(name)] = true
		return err
	}))
	total.packages = len(packages)
	return total
}

// A change that adds code takes as much away, unless it adds a capability: then it raises the budget.
func TestBudget_PartsAreWithinIt(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../.github/CONTRIBUTING.md")
	must(t, err)
	row := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([\\d,]+) \\| (\\d+) \\| (\\d+) \\|$")
	number := func(text string) int {
		n, err := strconv.Atoi(strings.ReplaceAll(text, ",", ""))
		must(t, err)
		return n
	}
	budget := map[string]size{}
	for _, found := range row.FindAllStringSubmatch(string(page), -1) {
		budget[found[1]] = size{number(found[2]), number(found[3]), number(found[4])}
	}
	for _, part := range folders() {
		has, may := sizeOf(t, part), budget[part]
		t.Logf("%s: %d lines, %d files, %d packages", part, has.lines, has.files, has.packages)
		if has.lines > may.lines || has.files > may.files || has.packages > may.packages {
			t.Errorf("%s has %+v, more than its budget %+v (CONTRIBUTING.md, The budget)", part, has, may)
		}
	}
}
