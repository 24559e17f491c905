package e2e

import (
	"bufio"
	"bytes"
	"go/ast"
	"go/format"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/almonerhq/almoner/shared/page/brand"
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
		eachFile(t, folder, func(name string) {
			if filepath.Ext(name) == ".go" {
				count++
				checkLayout(t, name)
			}
		})
	}
	if count < 500 {
		t.Errorf("only %d Go files were found", count)
	}
}

func checkLayout(t *testing.T, name string) {
	t.Helper()
	content := fileContent(t, name)
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
	must(t, lines.Err())
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
		eachFile(t, folder, func(name string) {
			if strings.HasSuffix(name, "_test.go") {
				return
			}
			for _, text := range textsOf(t, name) {
				count++
				if found := strange.FindString(text); found != "" {
					t.Errorf("%s: %q in %.200s", name, found, text)
				}
			}
		})
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
		return []string{string(fileContent(t, name))}
	case ".go":
		ast.Inspect(parseFile(t, name), func(node ast.Node) bool {
			if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				found = append(found, literal.Value)
			}
			return true
		})
	}
	return found
}

// Colours and sizes of all pages are declared in one place: tokens.css and dark.css of shared/page/brand.

var (
	comment     = regexp.MustCompile(`(?s)/\*.*?\*/`)
	declaration = regexp.MustCompile(`([a-z-]+):\s*([^;{}]+)[;}]`)

	rawColour = regexp.MustCompile(`#[0-9a-fA-F]{3,8}\b|\b(?:rgba?|hsla?|oklch|color)\(|` +
		`\b(?:white|black|red|green|blue|gr[ae]y)\b`)
	rawSize  = regexp.MustCompile(`[1-9.]\d*(?:rem|px)\b`) // 0rem needs no scale
	hairline = regexp.MustCompile(`(?:^|[ (])-?1px\b`)
	used     = regexp.MustCompile(`var\(--([a-z0-9-]+)`)
)

// sized are the properties whose sizes come from the scales. Relative sizes (em, %) need no scale.
var sized = regexp.MustCompile(
	`^(?:font|font-size|border-radius|(?:margin|padding|gap|row-gap|column-gap)(?:-[a-z]+)*)$`)

// faultsOf returns the declarations of a style sheet that have a colour or a size of their own, or use a custom
// property that is not declared.
func faultsOf(sheet string) (faults []string) {
	tokens := brand.Tokens()
	for _, match := range declaration.FindAllStringSubmatch(comment.ReplaceAllString(sheet, ""), -1) {
		property, value := match[1], match[2]
		fault := rawColour.MatchString(value) ||
			sized.MatchString(property) && rawSize.MatchString(hairline.ReplaceAllString(value, ""))
		for _, name := range used.FindAllStringSubmatch(value, -1) {
			fault = fault || !strings.Contains(tokens, "\n  --"+name[1]+": ")
		}
		if fault {
			faults = append(faults, property+": "+value)
		}
	}
	return faults
}

func TestStyle_SheetsTakeColoursAndSizesFromTokens(t *testing.T) {
	for _, sheet := range []string{
		"../authserver/internal/endpoint/ui/static/site.css", "../resourceapi/internal/endpoint/apidoc/assets/page.css",
		"../resourceapi/internal/endpoint/publicforms/assets/embed.css",
	} {
		for _, fault := range faultsOf(string(fileContent(t, sheet))) {
			t.Errorf("%s: %s", sheet, fault)
		}
	}
	for _, wrong := range []string{
		"a { color: #fff; }", "a { border: 1px solid rgb(0 0 0); }", "a { margin: 0 0.5rem; }", "a { font-size: 14px }",
		"a { color: var(--nothing); }",
	} {
		if faultsOf(wrong) == nil {
			t.Errorf("the test does not find %s", wrong)
		}
	}
	pages, err := filepath.Glob("../*/internal/endpoint/*/templates/*.html")
	must(t, err)
	assets, err := filepath.Glob("../resourceapi/internal/endpoint/*/assets/*.html")
	must(t, err)
	if len(pages) < 40 || len(assets) < 2 {
		t.Fatalf("%d templates and %d pages", len(pages), len(assets))
	}
	for _, page := range append(pages, assets...) {
		if strings.Contains(string(fileContent(t, page)), ` style="`) {
			t.Errorf("%s has styles of its own", page)
		}
	}
}

// size is how much Go a part of the repository has, without tests.
type size struct{ lines, files, packages int }

// sizeOf counts the Go of a folder.
func sizeOf(t *testing.T, folder string) size {
	t.Helper()
	var total size
	packages := map[string]bool{}
	eachFile(t, folder, func(name string) {
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			total.lines += bytes.Count(fileContent(t, name), []byte("\n"))
			total.files++
			packages[filepath.Dir(name)] = true
		}
	})
	total.packages = len(packages)
	return total
}

// A change that adds code takes as much away, unless it adds a capability: then it raises the budget.
func TestBudget_PartsAreWithinIt(t *testing.T) {
	t.Parallel()
	page := fileContent(t, "../.github/CONTRIBUTING.md")
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
