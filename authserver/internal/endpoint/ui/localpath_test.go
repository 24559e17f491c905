package ui

import (
	"net/url"
	"strings"
	"testing"
)

func TestLocalPath_RefusesOtherHosts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "a", "//evil.example", "///evil.example", `/\evil.example`, `/a\b`, "\\/evil.example", "/\t/evil.example",
		"/a b", "/é", "https://evil.example", "javascript:alert(1)", "/%zz", "/" + strings.Repeat("a", maxLocalPath),
		"evil.example", "%2F%2Fevil.example", `\\evil.example`, "/\n/evil.example", "/settings\r\nSet-Cookie: a=b",
	} {
		if got := LocalPath(text, "other"); got != "other" {
			t.Errorf("%.30q is accepted as a local path", text)
		}
	}
	for _, text := range []string{
		"/", "/a", "/a?b=//c", "/a#b", "/%2F/evil.example", "/%2Fevil.example", "/%5cevil.example",
	} {
		if got := LocalPath(text, "other"); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

func FuzzLocalPath(f *testing.F) {
	for _, seed := range []string{"/a?b", "//e", `/\e`, "/%2f", "/..//e", "/@e"} {
		f.Add(seed)
	}
	base, err := url.Parse("https://almoner.example/login")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		path := LocalPath(text, "/home")
		to, err := base.Parse(path)
		if err != nil || to.Host != base.Host || to.Scheme != base.Scheme || strings.ContainsAny(path, "\r\n\\") {
			t.Errorf("%q leads to %v", text, to)
		}
	})
}
