package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/page/brand"
)

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
		"../authserver/internal/endpoint/ui/static/site.css",
		"../resourceapi/internal/endpoint/apidoc/assets/page.css",
		"../resourceapi/internal/endpoint/publicforms/assets/embed.css",
	} {
		content, err := os.ReadFile(sheet)
		must(t, err)
		for _, fault := range faultsOf(string(content)) {
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
		content, err := os.ReadFile(page)
		must(t, err)
		if strings.Contains(string(content), ` style="`) {
			t.Errorf("%s has styles of its own", page)
		}
	}
}
