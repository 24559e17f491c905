package ui

import (
	"log/slog"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/page/brand"
)

func TestBrand_IsOnPagesAndInStyle(t *testing.T) {
	t.Parallel()
	b, err := (&brand.Options{BrandName: "Harbour <Trust>", BrandColour: "#7a1fa2"}).Read()
	if err != nil {
		t.Fatal(err)
	}
	pages, err := New(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	before := pages.files[sheetFile].version
	pages.SetBrand(b)
	if pages.files[sheetFile].version == before {
		t.Error("browsers keep the former style sheet")
	}
	page := httptest.NewRecorder()
	pages.ShowError(page, httptest.NewRequest("GET", "/nowhere", nil), MessageOf("page not found", ""))
	if text := page.Body.String(); !strings.Contains(text, "Harbour &lt;Trust&gt;</span>") ||
		!strings.Contains(text, "· Harbour &lt;Trust&gt;</title>") || strings.Contains(text, "Almoner") {
		t.Errorf("%s", text)
	}
	icon := httptest.NewRecorder()
	pages.Static().ServeHTTP(icon, httptest.NewRequest("GET", "/static/icon.svg", nil))
	if !strings.Contains(icon.Body.String(), "#7a1fa2") || icon.Header().Get("Content-Type") != "image/svg+xml" ||
		!strings.HasSuffix(icon.Header().Get("Content-Security-Policy"), "; sandbox") {
		t.Errorf("%v %s", icon.Header(), icon.Body)
	}
}

// Any brand colour has enough contrast with the colours of the style sheet, in both schemes.
func TestBrand_ColourHasContrastInBothSchemes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"#000000", "#7a1fa2", "#1f5f54", "#b00020", "#767676", "#0000ff"} {
		c, err := brand.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		light, dark, _ := strings.Cut(accent(c), "@media")
		for scheme, grounds := range map[string][]string{
			light: {"#ffffff", "#f5f6f4", "#f0f2f0"},
			dark:  {"#171d1b", "#0f1412", "#1e2623"},
		} {
			colours := map[string]brand.Colour{}
			for _, match := range variable.FindAllStringSubmatch(scheme, -1) {
				colours[match[1]], _ = brand.Parse(match[2])
			}
			if len(colours) != 4 {
				t.Fatalf("%s: %v", text, colours)
			}
			for _, hex := range grounds {
				ground, _ := brand.Parse(hex)
				if got := brand.Contrast(colours["link"], ground); got < 4.5 {
					t.Errorf("%s: links on %s have %.2f", text, hex, got)
				}
			}
			for _, button := range []string{"brand", "brand-strong"} {
				if got := brand.Contrast(colours["on-brand"], colours[button]); got < 4.5 {
					t.Errorf("%s: text on %s has %.2f", text, button, got)
				}
			}
		}
	}
}

var variable = regexp.MustCompile(`--([a-z-]+):(#[0-9a-f]{6})`)

func TestStyle_StartsWithTokens(t *testing.T) {
	t.Parallel()
	files, err := readStatic()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(files[sheetFile].content), brand.Tokens()) {
		t.Error("the style sheet does not define the custom properties")
	}
}
