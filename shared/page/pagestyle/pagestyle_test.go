package pagestyle

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/page/brand"
)

var must = testkit.Must

var linkColour = regexp.MustCompile(`--link:(#[0-9a-f]{6})`)

// link returns the colour of links in a style sheet.
func link(t *testing.T, sheet string) brand.Colour {
	t.Helper()
	found := linkColour.FindStringSubmatch(sheet)
	if found == nil {
		t.Fatalf("no colour of links in %s", sheet)
	}
	colour, err := brand.Parse(found[1])
	must(t, err)
	return colour
}

func TestAccent_ReplacesColoursOfBothSchemes(t *testing.T) {
	pale, err := brand.Parse("#ffe08a")
	must(t, err)
	light, rest, _ := strings.Cut(Accent(pale), "@media")
	if got := brand.Contrast(link(t, light), brand.LightGround); got < 4.5 {
		t.Errorf("%.2f on light", got)
	}
	if got := brand.Contrast(link(t, rest), brand.DarkGround); got < 4.5 {
		t.Errorf("%.2f on dark", got)
	}
}

func TestPrefersHTML_ReadsWeights(t *testing.T) {
	for accepts, want := range map[string]bool{
		"": false,
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": true,
		"application/json, text/html;Q=0.5":                               false,
		"*/*, text/html;q=0.5":                                            false,
		"application/*;q=0.9, text/html;q=0.8":                            false,
		"application/json;q=0.1, */*, text/html;q=0.5":                    true,
	} {
		if got := PrefersHTML(http.Header{"Accept": {accepts}}); got != want {
			t.Errorf("%q: %t", accepts, got)
		}
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
			must(t, err)
			content, err := io.ReadAll(reader)
			must(t, err)
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
