package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each service declares the colours and sizes of its pages in one place: authserver in :root of site.css, resourceapi
// in tokens.css and dark.css.

var (
	comment     = regexp.MustCompile(`(?s)/\*.*?\*/`)
	rootRule    = regexp.MustCompile(`(?s):root\s*\{[^}]*\}`)
	declaration = regexp.MustCompile(`([a-z-]+):\s*([^;{}]+)[;}]`)

	rawColour = regexp.MustCompile(`#[0-9a-fA-F]{3,8}\b|\b(?:rgba?|hsla?|oklch|color)\(|` +
		`\b(?:white|black|red|green|blue|gr[ae]y)\b`)
	rawSize  = regexp.MustCompile(`[1-9.]\d*(?:rem|px)\b`) // 0rem needs no scale
	hairline = regexp.MustCompile(`(?:^|[ (])-?1px\b`)
)

// sized are the properties whose sizes come from the scales. Relative sizes (em, %) need no scale.
var sized = regexp.MustCompile(
	`^(?:font|font-size|border-radius|(?:margin|padding|gap|row-gap|column-gap)(?:-[a-z]+)*)$`)

// faultsOf returns the declarations of a style sheet with a literal colour or, if sizes is set, a literal size.
func faultsOf(sheet string, sizes bool) (faults []string) {
	sheet = rootRule.ReplaceAllString(comment.ReplaceAllString(sheet, ""), "")
	for _, match := range declaration.FindAllStringSubmatch(sheet, -1) {
		property, value := match[1], match[2]
		if rawColour.MatchString(value) ||
			sizes && sized.MatchString(property) && rawSize.MatchString(hairline.ReplaceAllString(value, "")) {
			faults = append(faults, property+": "+value)
		}
	}
	return faults
}

func TestStyle_SheetsTakeColoursAndSizesFromTokens(t *testing.T) {
	for sheet, sizes := range map[string]bool{
		"../authserver/internal/endpoint/ui/static/site.css":            true,
		"../resourceapi/internal/endpoint/apidoc/assets/page.css":       false,
		"../resourceapi/internal/endpoint/publicforms/assets/embed.css": false,
	} {
		content, err := os.ReadFile(sheet)
		must(t, err)
		for _, fault := range faultsOf(string(content), sizes) {
			t.Errorf("%s: %s", sheet, fault)
		}
	}
	for _, wrong := range []string{
		"a { color: #fff; }", "a { border: 1px solid rgb(0 0 0); }", "a { margin: 0 0.5rem; }", "a { font-size: 14px }",
	} {
		if faultsOf(wrong, true) == nil {
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
		content, err := os.ReadFile(page)
		must(t, err)
		if strings.Contains(string(content), ` style="`) {
			t.Errorf("%s has an attribute style", page)
		}
	}
}
