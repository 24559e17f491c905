package ui

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/page/brand"
)

var must = testkit.Must

// parsed are pages with the templates of the package, for tests that change nothing of them.
var parsed = testkit.Once(func(t testing.TB) *Pages {
	pages, err := New(slog.New(slog.DiscardHandler))
	must(t, err)
	return pages
})

// unavailable returns the 503 to a request.
func unavailable(t *testing.T, r *http.Request) string {
	t.Helper()
	w := httptest.NewRecorder()
	parsed(t).Unavailable(w, r, Frame{})
	if w.Code != http.StatusServiceUnavailable {
		t.Fatal(w.Code)
	}
	return w.Body.String()
}

func posted(site, path, body string) *http.Request {
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", site)
	return r
}

func TestUnavailable_KeepsWhatWasTyped(t *testing.T) {
	t.Parallel()
	page := unavailable(t, posted("same-origin", "/settings/user/name", "key=k&name=%3CAda%3E&boxes=1&boxes=2"))
	for _, want := range []string{
		`<form method="post" action="/settings/user/name"`, `<input type="hidden" name="key" value="k">`,
		`<input type="hidden" name="name" value="&lt;Ada&gt;">`, `<input type="hidden" name="boxes" value="1">`,
		`<input type="hidden" name="boxes" value="2">`, "Try again",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in %s", want, page)
		}
	}
	if page := unavailable(t, httptest.NewRequest("GET", "/settings/apps?a=1&b=2", nil)); !strings.Contains(page,
		`href="/settings/apps?a=1&amp;b=2">Try again</a>`) {
		t.Error(page)
	}
}

// Nothing was typed on the consent page, and its buttons are answers.
func TestUnavailable_SaysWhatIsTrueOnConsentPage(t *testing.T) {
	t.Parallel()
	page := unavailable(t, posted("same-origin", "/oauth/authorize", "ticket=t&decision=approve&access=read"))
	if strings.Contains(page, "typed") || !strings.Contains(page, "Your answers are kept on this page.") ||
		!strings.Contains(page, `<input type="hidden" name="decision" value="approve">`) {
		t.Error(page)
	}
}

func TestUnavailable_RepeatsNoSecret(t *testing.T) {
	t.Parallel()
	page := unavailable(t, posted("same-origin", "/login", "email=ada%40example.org&password=hunter2&code=123456"))
	for _, secret := range []string{"hunter2", "123456"} {
		if strings.Contains(page, secret) {
			t.Errorf("the page repeats %s", secret)
		}
	}
	if !strings.Contains(page, `name="password" type="password" required>`) ||
		!strings.Contains(page, `value="ada@example.org"`) {
		t.Error(page)
	}
	for _, path := range []string{"/login/reset?token=s3cret", "/login/upstream/callback?code=s3cret&state=x"} {
		if page := unavailable(t, httptest.NewRequest("GET", path, nil)); strings.Contains(page, "s3cret") {
			t.Error(page)
		}
	}
	if page := unavailable(t, posted("same-origin", "/login/passkey", "answer=s3cret&x=1")); strings.Contains(page,
		"Try again") {
		t.Error(page)
	}
}

// A button on our page would send the form of another site as one of ours.
func TestUnavailable_DoesNotRepeatFormOfAnotherSite(t *testing.T) {
	t.Parallel()
	unnamed := posted("", "/settings/user/name", "name=Eve")
	unnamed.Header.Del("Sec-Fetch-Site")
	foreign := posted("", "/settings/user/name", "name=Eve")
	foreign.Header.Del("Sec-Fetch-Site")
	foreign.Header.Set("Origin", "https://elsewhere.example")
	for name, r := range map[string]*http.Request{
		"cross-site": posted("cross-site", "/settings/user/name", "name=Eve"),
		"same-site":  posted("same-site", "/settings/user/name", "name=Eve"),
		"unnamed":    unnamed,
		"foreign":    foreign,
		"too long":   posted("same-origin", "/settings/user/name", "name=Eve&x="+strings.Repeat("x", maxForm)),
	} {
		if page := unavailable(t, r); strings.Contains(page, "Eve") || strings.Contains(page, "<form") {
			t.Errorf("%s: %s", name, page)
		}
	}
}

func TestBrand_IsOnPagesAndInStyle(t *testing.T) {
	t.Parallel()
	b, err := (&brand.Options{BrandName: "Harbour <Trust>", BrandColour: "#7a1fa2"}).Read()
	must(t, err)
	pages, err := New(slog.New(slog.DiscardHandler))
	must(t, err)
	before := pages.files[sheetFile].version
	pages.SetBrand(b)
	if pages.files[sheetFile].version == before {
		t.Error("browsers keep the former style sheet")
	}
	pages.SetContact((&brand.ContactOptions{Contact: "help@example.org", ContactName: "Ada"}).Read())
	page := httptest.NewRecorder()
	refusal := MessageOf("address not proven, without mail", "")
	pages.ShowError(page, httptest.NewRequest("GET", "/nowhere", nil), refusal)
	if text := page.Body.String(); !strings.Contains(text, "Harbour &lt;Trust&gt;</span>") ||
		!strings.Contains(text, `Ask <a href="mailto:help@example.org">Ada</a> to confirm your address.`) ||
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
		must(t, err)
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
	must(t, err)
	if !strings.HasPrefix(string(files[sheetFile].content), brand.Tokens()) {
		t.Error("the style sheet does not define the custom properties")
	}
}

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
	must(f, err)
	f.Fuzz(func(t *testing.T, text string) {
		path := LocalPath(text, "/home")
		to, err := base.Parse(path)
		if err != nil || to.Host != base.Host || to.Scheme != base.Scheme || strings.ContainsAny(path, "\r\n\\") {
			t.Errorf("%q leads to %v", text, to)
		}
	})
}
