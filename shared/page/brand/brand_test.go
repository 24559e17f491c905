package brand

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must = testkit.Must

func TestAccent_EveryColourGetsContrast(t *testing.T) {
	for red := 0; red < 256; red += 15 {
		for green := 0; green < 256; green += 15 {
			for blue := 0; blue < 256; blue += 15 {
				c := Colour{uint8(red), uint8(green), uint8(blue)}
				for _, ground := range []Colour{LightGround, DarkGround} {
					a := c.Accent(ground)
					for name, got := range map[string]float64{
						"the ink on the ground": Contrast(a.Ink, ground),
						"the text on the fill":  Contrast(a.On, a.Fill),
						"the text when strong":  Contrast(a.On, a.Strong),
					} {
						if got < 4.5 {
							t.Fatalf("%v on %v: %s has %.2f", c, ground, name, got)
						}
					}
				}
			}
		}
	}
}

func TestAccent_KeepsColourThatHasContrast(t *testing.T) {
	own, _ := Parse("#1f5f54")
	if got := own.Accent(LightGround); got.Ink != own || got.Fill != own || got.On != white {
		t.Errorf("%v became %v", own, got)
	}
	if got := own.Accent(DarkGround); got.Ink == own || got.Fill != own {
		t.Errorf("on a dark ground, %v became %v", own, got)
	}
}

func TestContrast_MatchesWCAG(t *testing.T) {
	grey, _ := Parse("#767676")
	if got := Contrast(white, black); got != 21 {
		t.Error(got)
	}
	if got := Contrast(grey, white); got < 4.54 || got > 4.55 {
		t.Error(got)
	}
}

func TestParse_TakesHexadecimalDigitsOnly(t *testing.T) {
	for text, want := range map[string]string{"#1F5f54": "#1f5f54", "1f5f54": "#1f5f54", "#0aF": "#00aaff"} {
		if got, err := Parse(text); err != nil || got.String() != want {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "#", "#12345", "#1234567", "+12345", "-12345", "1_2345", "red", "0x1234", "#éa", "é1é1", "#12345g",
		"##1f5f5", "1f5f54;", "1f5f54 ",
	} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

const square = `<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"></svg>`

func TestOptions_MistakesNameTheSettingAndNoValue(t *testing.T) {
	folder := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(folder, name)
		must(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	good := Options{BrandName: "Harbour Trust", BrandColour: "#7a1fa2", BrandLogo: write("a.svg", square)}
	if mistakes := good.Check(); len(mistakes) > 0 {
		t.Errorf("%v", mistakes)
	}
	for want, o := range map[string]Options{
		"ALMONER_BRAND_NAME is not valid": {BrandName: "Harbour\u202eTrust", BrandColour: "#7a1fa2"},
		"ALMONER_BRAND_COLOUR must be":    {BrandName: "H", BrandColour: "purple"},
		"ALMONER_BRAND_COLOUR is too":     {BrandName: "H", BrandColour: "#f2c14e"},
		"ALMONER_BRAND_LOGO cannot": {
			BrandName:   "H",
			BrandColour: "#000",
			BrandLogo:   filepath.Join(folder, "none"),
		},
		"ALMONER_BRAND_LOGO must": {
			BrandName:   "H",
			BrandColour: "#000",
			BrandLogo:   write("b.svg", "<html xmlns='http://www.w3.org/1999/xhtml'/>"),
		},
		"ALMONER_BRAND_LOGO must be an SVG": {
			BrandName:   "H",
			BrandColour: "#000",
			BrandLogo:   write("c.svg", square+strings.Repeat(" ", 32<<10)),
		},
	} {
		mistakes := o.Check()
		if len(mistakes) != 1 || !strings.HasPrefix(mistakes[0].Error(), want) {
			t.Errorf("%s: %v", want, mistakes)
			continue
		}
		for _, value := range []string{"purple", "f2c14e", folder} {
			if strings.Contains(mistakes[0].Error(), value) {
				t.Errorf("%v quotes %s", mistakes[0], value)
			}
		}
	}
}

func TestRead_LogoDefaultsToAlmonersInBrandColour(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logo.png")
	image := "\x89PNG\r\n\x1a\nrest"
	must(t, os.WriteFile(path, []byte(image), 0o600))
	own, err := (&Options{BrandName: "H", BrandColour: "#000000", BrandLogo: path}).Read()
	if logo := own.Logo(); err != nil || string(logo.Content) != image || logo.ContentType != "image/png" {
		t.Errorf("%v %v", logo, err)
	}
	ours, err := (&Options{BrandName: "H", BrandColour: "#7a1fa2"}).Read()
	text := string(ours.Logo().Content)
	if err != nil || !isSVG([]byte(text)) || !strings.Contains(text, "#7a1fa2") ||
		strings.Contains(text, defaultColour) {
		t.Errorf("%s %v", text, err)
	}
	if colour, own := (Brand{}).Colour(); own || colour.String() != defaultColour {
		t.Errorf("%v %t", colour, own)
	}
	if none := (Brand{}); none.Name() != "Almoner" || !strings.Contains(string(none.Logo().Content), defaultColour) {
		t.Errorf("%s", none.Logo().Content)
	}
}

// pairs are the colours that meet on a page, with the minimum contrast: 4.5 for text, 3 for the outline of a control
// (WCAG 2.2, success criteria 1.4.3 and 1.4.11).
var pairs = []struct {
	front, backs string
	least        float64
}{
	{"ink", "paper card sunken bad-soft", 4.5},
	{"ink-soft", "paper card sunken good-soft", 4.5},
	{"link", "paper card sunken", 4.5},
	{"on-brand", "brand brand-strong", 4.5},
	{"bad", "bad-soft card paper sunken", 4.5},
	{"warn", "warn-soft paper card", 4.5},
	{"write", "paper card", 4.5},
	{"good", "paper card good-soft", 4.5},
	{"panel-ink", "panel", 4.5},
	{"panel-soft", "panel", 4.5},
	{"focus", "panel card paper", 3},
	{"control", "card paper", 3},
}

var property = regexp.MustCompile(`--([a-z-]+): ?(#[0-9a-f]{6})`)

func colours(t *testing.T, text string) map[string]Colour {
	t.Helper()
	out := map[string]Colour{}
	for _, match := range property.FindAllStringSubmatch(text, -1) {
		colour, err := Parse(match[2])
		must(t, err)
		out[match[1]] = colour
	}
	return out
}

func TestTokens_ColoursHaveContrastInBothSchemes(t *testing.T) {
	light, _, _ := strings.Cut(tokens, "@media")
	for name, text := range map[string]string{"light": light, "dark": dark} {
		have := colours(t, text)
		for _, pair := range pairs {
			for back := range strings.FieldsSeq(pair.backs) {
				if got := Contrast(have[pair.front], have[back]); got < pair.least {
					t.Errorf("%s: %s on %s has %.2f, less than %.1f", name, pair.front, back, got, pair.least)
				}
			}
		}
	}
	if got := colours(t, light)["sunken"]; got != LightGround {
		t.Errorf("the darkest light ground is %v", got)
	}
	if got := colours(t, dark)["sunken"]; got != DarkGround {
		t.Errorf("the lightest dark ground is %v", got)
	}
	if strings.Contains(Tokens(), "@dark") || strings.Count(Tokens(), "--ink: #e9eeeb") != 2 {
		t.Error("the dark colours are not in both places")
	}
}

// Every colour of the light scheme has one in the dark scheme, or is the same in both.
func TestTokens_DarkSchemeIsComplete(t *testing.T) {
	light, _, _ := strings.Cut(tokens, "@media")
	for name := range colours(t, light) {
		if _, declared := colours(t, dark)[name]; !declared && name != "qr-ground" {
			t.Errorf("--%s has no dark colour", name)
		}
	}
}

func TestContact_IsNamedByLink(t *testing.T) {
	const said = "Ask &lt;b&gt; or "
	for o, want := range map[ContactOptions]string{
		{}:                                   said + Unnamed + ".",
		{Contact: "help@example.org"}:        said + `<a href="mailto:help@example.org">help@example.org</a>.`,
		{Contact: "https://example.org/it/"}: said + `<a href="https://example.org/it/">example.org/it</a>.`,
		{Contact: "https://example.org/?a=1&b=2", ContactName: "Zoë <IT>"}: said +
			`<a href="https://example.org/?a=1&amp;b=2">Zoë &lt;IT&gt;</a>.`,
		{Contact: "a?cc=b@münchen.example", ContactName: "IT"}: said +
			`<a href="mailto:a%3Fcc=b@xn--mnchen-3ya.example">IT</a>.`,
	} {
		if got := o.Read().In("Ask <b> or "+Unnamed+".", Unnamed); string(got) != want || len(o.Check()) > 0 {
			t.Errorf("%+v: %s %v", o, got, o.Check())
		}
	}
}

func TestContactOptions_MistakesNameTheSetting(t *testing.T) {
	for o, want := range map[ContactOptions]string{
		{Contact: "help"}:                       "ALMONER_CONTACT must be",
		{Contact: "http://example.org"}:         "ALMONER_CONTACT must be",
		{Contact: "https://"}:                   "ALMONER_CONTACT must be",
		{Contact: "https://ada:pw@example.org"}: "ALMONER_CONTACT must be",
		{Contact: "javascript:alert(1)"}:        "ALMONER_CONTACT must be",
		{ContactName: "Ada"}:                    "ALMONER_CONTACT_NAME needs",
		{"a@example.org", "Ada\u202eb"}:         "ALMONER_CONTACT_NAME is not valid",
	} {
		mistakes := o.Check()
		if len(mistakes) != 1 || !strings.HasPrefix(mistakes[0].Error(), want) || o.Read().Link() == "" {
			t.Errorf("%+v: %v", o, mistakes)
		}
	}
}
