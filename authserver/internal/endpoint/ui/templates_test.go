package ui

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
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

// TestMessages_AreUsedAndComplete checks that each name that the endpoints pass to MessageOf has a message, and each
// message a use.
func TestMessages_AreUsedAndComplete(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../*/*.go")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	used := map[string]bool{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`MessageOf\("([^"]+)"`).FindAllStringSubmatch(string(content), -1) {
			used[found[1]] = true
		}
	}
	for name, m := range messages() {
		wanted := used[name]
		if prefix, needed, ofSection := strings.Cut(name, "account:"); ofSection { // by the permission that it needs
			wanted = used[prefix] && needed != ""
		}
		if !wanted || m.Status < 400 || m.Heading == "" || m.Text == "" {
			t.Errorf("%q is not used, or incomplete: %+v", name, m)
		}
	}
	for name := range used {
		if _, known := messages()[name]; !known && name != "without " {
			t.Errorf("there is no message %q", name)
		}
	}
}
