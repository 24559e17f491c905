package ui

import (
	"compress/gzip"
	"io"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/page/brand"
)

var property = regexp.MustCompile(`--([a-z-]+): ?(#[0-9a-f]{6})`)

func colours(t *testing.T, text string) map[string]brand.Colour {
	t.Helper()
	out := map[string]brand.Colour{}
	for _, match := range property.FindAllStringSubmatch(text, -1) {
		colour, err := brand.Parse(match[2])
		if err != nil {
			t.Fatal(err)
		}
		out[match[1]] = colour
	}
	return out
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
