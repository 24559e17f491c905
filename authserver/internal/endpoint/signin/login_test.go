package signin_test

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestSignIn_SetsProtectedCookie(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Member()
	browser := site.Browser()
	answer := browser.Get("/login").
		Send("/login", browsertest.Fields{"email": strings.ToUpper(ada.Email) + " ", "password": browsertest.Password})
	if answer.Status != http.StatusSeeOther || answer.Location() != "/settings/user" {
		t.Fatalf("%d to %q: %s", answer.Status, answer.Location(), answer.Text())
	}
	cookie := answer.Header.Get("Set-Cookie")
	for _, want := range []string{"almoner=", "Path=/", "HttpOnly", "SameSite=Lax"} {
		if !strings.Contains(cookie, want) {
			t.Errorf("Set-Cookie lacks %s: %s", want, cookie)
		}
	}
	value := browser.Session()
	sum := sha256.Sum256([]byte(value))
	hash := base64.RawURLEncoding.EncodeToString(sum[:])
	if n := site.Count(`select count(*) from account.sessions where token = $1`, value); n != 0 {
		t.Error("the cookie itself is in the database")
	}
	if n := site.Count(`select count(*) from account.sessions where token = $1`, hash); n != 1 {
		t.Errorf("%d rows with the cookie's hash", n)
	}
	if n := site.Count(`select count(*) from account.audit_events
		where action = '`+audit.SignInSucceeded+`' and user_id = $1`, ada.ID); n != 1 {
		t.Errorf("%d audit events", n)
	}
}

// A browser that blocks cookies would come back to the sign-in page without a reason.
func TestSignIn_WithoutCookiesSaysSo(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Member()
	form := site.Browser().Get("/login?return=/settings/apps").Form("/login")
	form.Set("email", ada.Email)
	form.Set("password", browsertest.Password)
	answer := site.Browser().Post("/login", form)
	if answer.Status != http.StatusBadRequest || !answer.HasText("Your browser sent no cookie.") ||
		answer.Form("/login").Get("return") != "/settings/apps" {
		t.Errorf("%d: %s", answer.Status, answer.Text())
	}
	if n := site.Count(`select count(*) from account.sign_ins`); n != 0 {
		t.Errorf("%d sign-ins", n)
	}
	form.Del("cookies") // not a page of this server
	if answer := site.Browser().Post("/login", form); answer.Status != http.StatusSeeOther {
		t.Errorf("a form that no page offered: %d", answer.Status)
	}
}

func TestSignIn_RedirectsOnlyToLocalPaths(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Member()
	const home = "/settings/user"
	for asked, want := range map[string]string{
		"":                               home,
		"/settings/apps":                 "/settings/apps",
		"/oauth/authorize?a=1&b=%2F":     "/oauth/authorize?a=1&b=%2F",
		"//evil.example":                 home,
		"///evil.example":                home,
		`/\evil.example`:                 home,
		`\\evil.example`:                 home,
		"/\t/evil.example":               home,
		"/\n/evil.example":               home,
		"https://evil.example/":          home,
		"javascript:alert(1)":            home,
		"evil.example":                   home,
		"%2F%2Fevil.example":             home,
		"/%5cevil.example":               "/%5cevil.example", // a path: browsers do not decode it into a host
		"/%2Fevil.example":               "/%2Fevil.example",
		"/settings\r\nSet-Cookie: a=b":   home,
		"/" + strings.Repeat("a", 20000): home,
	} {
		answer := site.Browser().
			Post("/login", url.Values{"email": {ada.Email}, "password": {browsertest.Password}, "return": {asked}})
		if answer.Status != http.StatusSeeOther || answer.Location() != want {
			t.Errorf("return=%.40q: %d to %q, want %q", asked, answer.Status, answer.Location(), want)
		}
	}
	form := site.Browser().Get("/login?return=" + url.QueryEscape("//evil.example")).Form("/login")
	if form.Get("return") != "" {
		t.Errorf("the form carries %q", form.Get("return"))
	}
	if to := site.SignedIn(ada).Get("/login?return=//evil.example").Location(); to != home {
		t.Errorf("a signed-in user is sent to %q", to)
	}
}

func TestSignIn_WrongPasswordAndUnknownAddressGetSameResponse(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada, gone := site.Member(), site.Member()
	site.Fixture.Exec(`update account.users set disabled_at = now() where id = $1`, gone.ID)
	attempt := func(email, password string) (int, string) {
		page := site.Browser().Get("/login").Send("/login", browsertest.Fields{"email": email, "password": password})
		if strings.Contains(page.Body, password) {
			t.Errorf("the password is on the page")
		}
		if page.Form("/login").Get("email") != email {
			t.Errorf("what was typed is lost: %q", page.Form("/login").Get("email"))
		}
		text, _, _ := strings.Cut(page.Text(), "Request id")
		return page.Status, text
	}
	wrong, wrongText := attempt(ada.Email, "a wrong password")
	for name, email := range map[string]string{"unknown": "nobody@example.org", "disabled": gone.Email} {
		status, text := attempt(email, browsertest.Password)
		if status != wrong || text != wrongText {
			t.Errorf("%s: %d %q; wrong password: %d %q", name, status, text, wrong, wrongText)
		}
	}
	if wrong != http.StatusBadRequest {
		t.Errorf("status %d", wrong)
	}
}

func TestSignIn_FailedAttemptStillNamesApplication(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	app := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	request := "/oauth/authorize?" + url.Values{
		"client_id":    {app.ID.String()},
		"redirect_uri": {app.Redirects[0]},
	}.Encode()
	for name, page := range map[string]*browsertest.Page{
		"at first": site.Browser().Get(request),
		"a wrong password": site.Browser().Get(request).Send("/login", browsertest.Fields{
			"email":    "ada@example.org",
			"password": "wrong",
		}),
		"a bad form":        site.Browser().Get(request).Send("/login", nil),
		"another way to it": site.Browser().Get("/login?return=" + url.QueryEscape(request)),
	} {
		if !page.HasText("to continue to "+app.Name) || page.Form("/login").Get("return") != request {
			t.Errorf("%s: %s", name, page.Text())
		}
	}
	for _, path := range []string{
		"/oauth/authorize?client_id=x",
		"/oauth/authorize?" + strings.Repeat("%", 9),
		"/settings/apps",
	} {
		if page := site.Browser().Get("/login?return=" + url.QueryEscape(path)); page.Status != http.StatusOK ||
			page.HasText("to continue to ") {
			t.Errorf("%s: %d %s", path, page.Status, page.Text())
		}
	}
}

func TestSignIn_BadFormIsShownAgain(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	for name, form := range map[string]url.Values{
		"nothing":        {},
		"no password":    {"email": {"ada@example.org"}},
		"no address":     {"email": {"ada"}, "password": {"secret words"}},
		"NUL in address": {"email": {"ada\x00@example.org"}, "password": {"secret words"}},
		"no UTF-8":       {"email": {"ada\xff@example.org"}, "password": {"secret words"}},
		"twice":          {"email": {"ada@example.org", "bob@example.org"}, "password": {"secret words"}},
	} {
		page := site.Browser().Post("/login", form)
		if page.Status != http.StatusBadRequest || len(page.Elements("form")) == 0 {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
		}
		if strings.Contains(page.Body, "secret words") {
			t.Errorf("%s: the password is on the page", name)
		}
	}
	if page := site.Browser().Post("/login", url.Values{
		"email": {strings.Repeat("a", 70<<10)},
	}); page.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("70 KiB: %d", page.Status)
	}
}

func TestSignIn_CrossOriginRequestsAreRefused(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Member()
	good := url.Values{"email": {ada.Email}, "password": {browsertest.Password}}
	for name, header := range map[string]http.Header{
		"foreign origin": {"Origin": {"https://evil.example"}},
		"null origin":    {"Origin": {"null"}},
		"cross-site":     {"Sec-Fetch-Site": {"cross-site"}, "Origin": {site.URL}},
		"same-site":      {"Sec-Fetch-Site": {"same-site"}},
	} {
		browser := site.SignedIn(ada)
		browser.Headers = header
		for _, path := range []string{"/login", "/logout"} {
			if page := browser.Post(path, good); page.Status != http.StatusForbidden {
				t.Errorf("%s: POST %s: %d", name, path, page.Status)
			}
		}
		browser.Headers = http.Header{}
		if page := browser.Get("/login"); page.Status != http.StatusSeeOther {
			t.Errorf("%s: the browser was signed out", name)
		}
	}
	for name, header := range map[string]http.Header{
		"no headers":  {},
		"same origin": {"Sec-Fetch-Site": {"same-origin"}, "Origin": {"null"}},
		"old browser": {"Origin": {site.URL}},
	} {
		browser := site.Browser()
		browser.Headers = header
		if page := browser.Post("/login", good); page.Status != http.StatusSeeOther {
			t.Errorf("%s: %d", name, page.Status)
		}
	}
}

func TestSignOut_EndsCopiesOfTheCookie(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Member()
	browser := site.SignedIn(ada)
	stolen := site.Browser()
	stolen.SetCookies(browser.Cookies())
	if page := stolen.Get("/login"); page.Status != http.StatusSeeOther {
		t.Fatal("the copy of the cookie does not work before the sign-out")
	}
	answer := browser.Post("/logout", url.Values{"return": {"/oauth/authorize?x=1"}})
	if answer.Status != http.StatusSeeOther || answer.Location() != "/oauth/authorize?x=1" {
		t.Fatalf("%d %q", answer.Status, answer.Location())
	}
	for name, b := range map[string]*browsertest.Browser{"this browser": browser, "the copy": stolen} {
		if page := b.Get("/login"); page.Status != http.StatusOK {
			t.Errorf("%s is still signed in", name)
		}
	}
	if n := site.Count(`select count(*) from account.sign_ins
		where user_id = $1 and ended_at is not null`, ada.ID); n != 1 {
		t.Errorf("%d sign-ins ended", n)
	}
}
