package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// contents returns the contents of the files that match.
func contents(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files match %s: %v", len(files), pattern, err)
	}
	var all strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(content)
	}
	return all.String()
}

// TestFields_AreUsedAndOnPages checks that each field of the table is named in the source, by its name or by the form
// before it, and that a page has it and shows its error.
func TestFields_AreUsedAndOnPages(t *testing.T) {
	t.Parallel()
	source, pages := contents(t, "*.go"), contents(t, "../ui/templates/*.html")
	for name, field := range fields() {
		form, _, _ := strings.Cut(name, " ")
		if !strings.Contains(source, `("`+name+`", `) && !strings.Contains(source, `("`+form+` "+`) {
			t.Errorf("%q is not used", name)
		}
		if field.Label == "" || !strings.Contains(pages, `id="`+field.At+`"`) ||
			!strings.Contains(pages, `.Of "`+field.Field+`"`) {
			t.Errorf("%q is not on a page: %+v", name, field)
		}
	}
}
