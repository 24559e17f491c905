package e2e

import (
	"io/fs"
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
	exists := testsOfTheRepository(t)
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
		wantsTests(t, exists, cells[2])
	}
	if rows < 100 {
		t.Errorf("only %d sentences found", rows)
	}
}

// testName finds the name of a test, as folder.Name, or as Name for tests of this package.
var testName = regexp.MustCompile("`((?:\\w+\\.)?Test\\w+)`")

// wantsTests checks that a text names tests, and only existing ones.
func wantsTests(t *testing.T, exists map[string]bool, text string) {
	t.Helper()
	names := testName.FindAllStringSubmatch(text, -1)
	if len(names) == 0 {
		t.Errorf("no test is named: %s", text)
	}
	for _, name := range names {
		if !exists[name[1]] && !exists["e2e."+name[1]] {
			t.Errorf("%s does not exist: %s", name[1], text)
		}
	}
}

// testsOfTheRepository returns the names of the tests of every package, as folder.Name.
func testsOfTheRepository(t *testing.T) map[string]bool {
	t.Helper()
	exists, declaration := map[string]bool{}, regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, folder := range folders() {
		must(t, filepath.WalkDir(filepath.Join("..", folder), func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, "_test.go") {
				return err
			}
			content, err := os.ReadFile(name)
			for _, found := range declaration.FindAllStringSubmatch(string(content), -1) {
				exists[filepath.Base(filepath.Dir(name))+"."+found[1]] = true
			}
			return err
		}))
	}
	return exists
}
