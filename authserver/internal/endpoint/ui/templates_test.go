package ui

import (
	"io/fs"
	"regexp"
	"testing"
)

// TestTemplates_NamesAreUnique checks that no file defines a name again: all files are in one set, and the last
// definition would replace the others without an error.
func TestTemplates_NamesAreUnique(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d templates: %v", len(files), err)
	}
	definition := regexp.MustCompile(`\{\{-? *define +"([^"]+)"`)
	in := map[string]string{}
	for _, file := range files {
		content, err := fs.ReadFile(templateFiles, file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range definition.FindAllStringSubmatch(string(content), -1) {
			if other, defined := in[found[1]]; defined {
				t.Errorf("%s and %s define %q", other, file, found[1])
			}
			in[found[1]] = file
		}
	}
	if len(in) < 20 {
		t.Errorf("only %d names are defined", len(in))
	}
}
