package e2e

import (
	"bufio"
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxColumns = 120
	tabWidth   = 4
)

// structTag matches a field with a tag, which cannot be broken into lines.
var structTag = regexp.MustCompile("^\\s+\\w+(\\s+[\\w.*\\[\\]]+)?\\s+`[a-z]+:\"[^`]*\"`|^\\s+}\\s+`[a-z]+:\"[^`]*\"`")

// The repository's Go files are formatted, and have lines of at most 120 columns.
func TestStyle_FilesAreFormattedWithLinesOfAtMost120Columns(t *testing.T) {
	t.Parallel()
	count := 0
	for _, folder := range folders() {
		err := filepath.WalkDir(filepath.Join("..", folder), func(name string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(name) != ".go" {
				return err
			}
			count++
			return checkLayout(t, name)
		})
		must(t, err)
	}
	if count < 500 {
		t.Errorf("only %d Go files were found", count)
	}
}

func checkLayout(t *testing.T, name string) error {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if formatted, err := format.Source(content); err != nil || !bytes.Equal(formatted, content) {
		t.Errorf("%s is not formatted as gofmt does: %v", name, err)
	}
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, len(content)+1)
	for number := 1; lines.Scan(); number++ {
		text := strings.ReplaceAll(lines.Text(), "\t", strings.Repeat(" ", tabWidth))
		columns := utf8.RuneCountInString(text)
		if columns > maxColumns && !structTag.MatchString(text) {
			t.Errorf("%s:%d has %d columns, want at most %d", name, number, columns, maxColumns)
		}
	}
	return lines.Err()
}

// strange matches words that texts for users and clients must not contain.
var strange = regexp.MustCompile(`(?i)\b(somebody|whoever|nobody|to the letter|anew)\b`)

// The texts that users and clients read are plain English.
func TestStyle_TextsHaveNoStrangeWords(t *testing.T) {
	t.Parallel()
	count := 0
	for _, folder := range []string{
		"authserver", "resourceapi", "shared/contract/apierr", "shared/client", "shared/contract/displayname",
		"shared/server/inflight", "shared/contract/openapi", "shared/contract/perm", "shared/rest",
		"shared/contract/spelling", "shared/net/web", "deploy/local",
	} {
		err := filepath.WalkDir(filepath.Join("..", folder), func(name string, _ fs.DirEntry, err error) error {
			if err != nil || strings.HasSuffix(name, "_test.go") {
				return err
			}
			for _, text := range textsOf(t, name) {
				count++
				if found := strange.FindString(text); found != "" {
					t.Errorf("%s: %q in %.200s", name, found, text)
				}
			}
			return nil
		})
		must(t, err)
	}
	if count < 500 {
		t.Errorf("only %d texts were found", count)
	}
}

// textsOf returns the string literals of a Go file, or the content of a page, a script or a table of texts.
func textsOf(t *testing.T, name string) (found []string) {
	t.Helper()
	switch filepath.Ext(name) {
	case ".html", ".js", ".json", ".txt":
		content, err := os.ReadFile(name)
		must(t, err)
		return []string{string(content)}
	case ".go":
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		must(t, err)
		ast.Inspect(file, func(node ast.Node) bool {
			if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				found = append(found, literal.Value)
			}
			return true
		})
	}
	return found
}
