package brand

import (
	"compress/gzip"
	"io"
	"net/http/httptest"
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

func TestAccent_ReplacesColoursOfBothSchemes(t *testing.T) {
	pale, err := brand.Parse("#ffe08a")
	if err != nil {
		t.Fatal(err)
	}
	light, rest, _ := strings.Cut(Accent(pale), "@media")
	if got := brand.Contrast(colours(t, light)["link"], brand.LightGround); got < 4.5 {
		t.Errorf("%.2f on light", got)
	}
	if got := brand.Contrast(colours(t, rest)["link"], brand.DarkGround); got < 4.5 {
		t.Errorf("%.2f on dark", got)
	}
}

func TestFile_IsCompressedForClientsThatAcceptIt(t *testing.T) {
	text := strings.Repeat("body { margin: 0 } ", 200)
	handler := File([]byte(text), map[string]string{"Content-Type": "text/css; charset=utf-8"})
	for accepts, compressed := range map[string]bool{
		"":                       false,
		"identity":               false,
		"gzip":                   true,
		"br, GZIP;q=0.5":         true,
		"gzip;q=0":               false,
		"gzip; q=0.0, *":         false,
		"*":                      true,
		"*;q=0":                  false,
		"deflate, br, zstd":      false,
		"gzip;q=nonsense, *;q=1": false,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Accept-Encoding", accepts)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if is := w.Header().Get("Content-Encoding") == "gzip"; is != compressed || w.Code != 200 ||
			w.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%q: %v", accepts, w.Header())
		}
		got := w.Body.String()
		if compressed {
			reader, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(reader)
			if err != nil {
				t.Fatal(err)
			}
			got = string(content)
		}
		if got != text {
			t.Errorf("%q: other content", accepts)
		}
		again := httptest.NewRequest("GET", "/", nil)
		again.Header.Set("Accept-Encoding", accepts)
		again.Header.Set("If-None-Match", w.Header().Get("ETag"))
		w = httptest.NewRecorder()
		if handler.ServeHTTP(w, again); w.Code != 304 || w.Body.Len() != 0 {
			t.Errorf("%q: %d", accepts, w.Code)
		}
	}
	short := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	if File([]byte("short"), nil).ServeHTTP(short, r); short.Body.String() != "short" {
		t.Errorf("%v", short.Header())
	}
}
