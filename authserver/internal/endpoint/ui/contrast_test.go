package ui

import (
	"math"
	"regexp"
	"strconv"
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
	{"link", "card", 4.5},
	{"link", "paper", 4.5},
	{"link", "sunken", 4.5},
	{"on-brand", "brand", 4.5},
	{"on-brand", "brand-strong", 4.5},
	{"bad", "bad-soft", 4.5},
	{"bad", "card", 4.5},
	{"warn", "warn-soft", 4.5},
	{"good", "good-soft", 4.5},
	{"control", "card", 3},
	{"focus", "card", 3},
	{"focus", "paper", 3},
}

var variable = regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6});`)

func TestColours_HaveContrastInBothSchemes(t *testing.T) {
	sheet, err := staticFiles.ReadFile("static/site.css")
	if err != nil {
		t.Fatal(err)
	}
	light, dark, found := strings.Cut(string(sheet), "prefers-color-scheme: dark")
	if !found {
		t.Fatal("there is no dark scheme")
	}
	for name, text := range map[string]string{"light": light, "dark": dark} {
		colours := map[string]string{}
		for _, match := range variable.FindAllStringSubmatch(text, -1) {
			colours[match[1]] = match[2]
		}
		for _, pair := range pairs {
			if got := contrast(colours[pair.front], colours[pair.back]); !(got >= pair.least) {
				t.Errorf("%s: %s on %s has %.2f, less than %.1f", name, pair.front, pair.back, got, pair.least)
			}
		}
	}
}

var (
	ownSize = regexp.MustCompile(`(?:font-size|border-radius): [^;}]*\d(?:rem|px)`)
	named   = regexp.MustCompile(`var\(--([a-z0-9-]+)\)`)
)

func TestStyle_SizesAndCornersAreThoseOfTheScales(t *testing.T) {
	sheet, err := staticFiles.ReadFile("static/site.css")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range ownSize.FindAllString(string(sheet), -1) {
		t.Errorf("a size that is not in the scales: %s", found)
	}
	for _, match := range named.FindAllStringSubmatch(string(sheet), -1) {
		if !strings.Contains(string(sheet), "\n  --"+match[1]+": ") {
			t.Errorf("--%s is not declared", match[1])
		}
	}
}

func contrast(a, b string) float64 {
	lighter, darker := luminance(a), luminance(b)
	if lighter < darker {
		lighter, darker = darker, lighter
	}
	return (lighter + 0.05) / (darker + 0.05)
}

func luminance(hex string) float64 {
	if len(hex) != 6 {
		return math.NaN()
	}
	weights, sum := [3]float64{0.2126, 0.7152, 0.0722}, 0.0
	for i := range 3 {
		value, _ := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		channel := float64(value) / 255
		if channel <= 0.04045 {
			channel /= 12.92
		} else {
			channel = math.Pow((channel+0.055)/1.055, 2.4)
		}
		sum += weights[i] * channel
	}
	return sum
}
