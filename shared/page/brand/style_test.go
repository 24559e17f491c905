package brand

import (
	"regexp"
	"strings"
	"testing"
)

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
		if err != nil {
			t.Fatal(err)
		}
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
