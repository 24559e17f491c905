package brand

import (
	"regexp"
	"strings"
	"testing"
)

// pairs are the colours that meet on a page, with the minimum contrast: 4.5 for text, 3 for the outline of a control
// (WCAG 2.2, success criteria 1.4.3 and 1.4.11).
var pairs = []struct {
	front, back string
	least       float64
}{
	{"ink", "paper", 4.5},
	{"ink", "card", 4.5},
	{"ink", "sunken", 4.5},
	{"ink-soft", "paper", 4.5},
	{"ink-soft", "card", 4.5},
	{"ink-soft", "sunken", 4.5},
	{"ink-soft", "good-soft", 4.5},
	{"ink", "bad-soft", 4.5},
	{"link", "paper", 4.5},
	{"link", "card", 4.5},
	{"link", "sunken", 4.5},
	{"on-brand", "brand", 4.5},
	{"on-brand", "brand-strong", 4.5},
	{"bad", "bad-soft", 4.5},
	{"bad", "card", 4.5},
	{"bad", "paper", 4.5},
	{"bad", "sunken", 4.5},
	{"warn", "warn-soft", 4.5},
	{"warn", "paper", 4.5},
	{"warn", "card", 4.5},
	{"write", "paper", 4.5},
	{"write", "card", 4.5},
	{"good", "paper", 4.5},
	{"good", "card", 4.5},
	{"good", "good-soft", 4.5},
	{"panel-ink", "panel", 4.5},
	{"panel-soft", "panel", 4.5},
	{"focus", "panel", 3},
	{"control", "card", 3},
	{"control", "paper", 3},
	{"focus", "card", 3},
	{"focus", "paper", 3},
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
			front, back := have[pair.front], have[pair.back]
			if got := Contrast(front, back); got < pair.least {
				t.Errorf("%s: %s on %s has %.2f, less than %.1f", name, pair.front, pair.back, got, pair.least)
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
