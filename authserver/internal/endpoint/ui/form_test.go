package ui

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// parsed are pages with the templates of the package, for tests that change nothing of them.
var parsed = testkit.Once(func(t testing.TB) *Pages {
	pages, err := New(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
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
