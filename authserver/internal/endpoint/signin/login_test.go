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

var shared, own = browsertest.Shared, browsertest.Own

func TestSignIn_SetsProtectedCookie(t *testing.T) {
	site := shared(t)
	ada := site.Member()
	browser := site.Browser()
	answer := browser.Get("/login").Selects("input[name=password][type=password]").
		Send("/login", browsertest.Fields{"email": strings.ToUpper(ada.Email) + " ", "password": browsertest.Password})
	answer.Wants(http.StatusSeeOther).LeadsTo("/settings/user")
	site.Contains("Set-Cookie", answer.Header.Get("Set-Cookie"), "almoner=", "Path=/", "HttpOnly", "SameSite=Lax")
	value := browser.Session()
	sum := sha256.Sum256([]byte(value))
	hash := base64.RawURLEncoding.EncodeToString(sum[:])
	site.CountIs(0, `select count(*) from account.sessions where token = $1`, value)
	site.CountIs(1, `select count(*) from account.sessions where token = $1`, hash)
	site.CountIs(1, `select count(*) from account.audit_events where action = $1 and user_id = $2`,
		audit.SignInSucceeded, ada.ID)
}

// A browser that blocks cookies would come back to the sign-in page without a reason.
func TestSignIn_WithoutCookiesSaysSo(t *testing.T) {
	site := shared(t)
	ada := site.Member()
	form := site.Browser().Get("/login?return=/settings/apps").Form("/login")
	form.Set("email", ada.Email)
	form.Set("password", browsertest.Password)
	site.Browser().Post("/login", form).Wants(http.StatusBadRequest, "Your browser sent no cookie.").
		Keeps("/login", "return", "/settings/apps")
	site.CountIs(0, `select count(*) from account.sign_ins where user_id = $1`, ada.ID)
	form.Del("cookies") // not a page of this server
	site.Browser().Post("/login", form).Wants(http.StatusSeeOther)
}

func TestSignIn_WrongPasswordAndUnknownAddressGetSameResponse(t *testing.T) {
	site := shared(t)
	ada, gone := site.Member(), site.Member()
	site.Fixture.Exec(`update account.users set disabled_at = now() where id = $1`, gone.ID)
	refused := func(email, password string) (text string) {
		page := site.Browser().Get("/login").Send("/login", browsertest.Fields{"email": email, "password": password})
		page.Wants(http.StatusBadRequest).Omits(password).Keeps("/login", "email", email)
		text, _, _ = strings.Cut(page.Text(), "Request id")
		return text
	}
	wrong := refused(ada.Email, "a wrong password")
	for name, email := range map[string]string{"unknown": "nobody@example.org", "disabled": gone.Email} {
		site.Equal(name, refused(email, browsertest.Password), wrong)
	}
}

func TestSignIn_FailedAttemptStillNamesApplication(t *testing.T) {
	site := shared(t)
	app := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	request := consent(app)
	for name, page := range map[string]*browsertest.Page{
		"at first": site.Browser().Get(request),
		"a wrong password": site.Browser().Get(request).Send("/login",
			browsertest.Fields{"email": "ada@example.org", "password": "wrong"}),
		"a bad form":        site.Browser().Get(request).Send("/login", nil),
		"another way to it": site.Browser().Get("/login?return=" + url.QueryEscape(request)),
	} {
		page.As(name).Says("to continue to "+app.Name).Keeps("/login", "return", request)
	}
	for _, path := range []string{
		"/oauth/authorize?client_id=x", "/oauth/authorize?" + strings.Repeat("%", 9), "/settings/apps",
	} {
		site.Browser().Get("/login?return=" + url.QueryEscape(path)).As(path).Wants(http.StatusOK).
			Lacks("to continue to ")
	}
}

func TestSignIn_BadFormIsShownAgain(t *testing.T) {
	site := shared(t)
	for name, form := range map[string]url.Values{
		"nothing":        {},
		"no password":    {"email": {"ada@example.org"}},
		"no address":     {"email": {"ada"}, "password": {"secret words"}},
		"NUL in address": {"email": {"ada\x00@example.org"}, "password": {"secret words"}},
		"no UTF-8":       {"email": {"ada\xff@example.org"}, "password": {"secret words"}},
		"twice":          {"email": {"ada@example.org", "bob@example.org"}, "password": {"secret words"}},
	} {
		site.Browser().Post("/login", form).As(name).Wants(http.StatusBadRequest).Contains("<form").
			Omits("secret words")
	}
	site.Browser().Post("/login", url.Values{"email": {strings.Repeat("a", 70<<10)}}).
		Wants(http.StatusRequestEntityTooLarge)
}

func TestSignIn_CrossOriginRequestsAreRefused(t *testing.T) {
	site := shared(t)
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
			browser.Post(path, good).As(name, path).Wants(http.StatusForbidden)
		}
		browser.Headers = http.Header{}
		browser.Get("/login").As(name).Wants(http.StatusSeeOther)
	}
	for name, header := range map[string]http.Header{
		"no headers":  {},
		"same origin": {"Sec-Fetch-Site": {"same-origin"}, "Origin": {"null"}},
		"old browser": {"Origin": {site.URL}},
	} {
		browser := site.Browser()
		browser.Headers = header
		browser.Post("/login", good).As(name).Wants(http.StatusSeeOther)
	}
}

func TestSignOut_EndsCopiesOfTheCookie(t *testing.T) {
	site := shared(t)
	ada := site.Member()
	browser := site.SignedIn(ada)
	stolen := site.Browser()
	stolen.SetCookies(browser.Cookies())
	stolen.Get("/login").Wants(http.StatusSeeOther)
	browser.Post("/logout", url.Values{"return": {"/oauth/authorize?x=1"}}).Wants(http.StatusSeeOther).
		LeadsTo("/oauth/authorize?x=1")
	for name, b := range map[string]*browsertest.Browser{"this browser": browser, "the copy": stolen} {
		b.Get("/login").As(name).Wants(http.StatusOK)
	}
	site.CountIs(1, `select count(*) from account.sign_ins
		where user_id = $1 and ended_at is not null`, ada.ID)
}

func TestSession_OutageIsNotSignedOut(t *testing.T) {
	site := own(t)
	ada := site.Member()
	browser, stranger := site.SignedIn(ada), site.Browser()
	restore := site.CutPostgres()
	form := map[string][]string{"email": {ada.Email}, "password": {browsertest.Password}}
	for name, page := range map[string]*browsertest.Page{
		"a page":      browser.Get("/login"),
		"a sign-in":   stranger.Post("/login", form),
		"a wrong one": stranger.Post("/login", map[string][]string{"email": {ada.Email}, "password": {"wrong"}}),
		"a sign-out":  browser.Post("/logout", nil),
	} {
		page.As(name).Wants(http.StatusServiceUnavailable).HasHeader("Retry-After")
		page.As(name).Says("you were not signed out").Lacks("signed in")
	}
	restore()
	browser.Get("/login").Wants(http.StatusSeeOther)
}

func TestSession_EndsOnEndExpiryIdleAndDisabledUser(t *testing.T) {
	site := shared(t)
	for name, sql := range map[string]string{
		"ended elsewhere": `update account.sign_ins set ended_at = now() where user_id = $1`,
		"expired":         `update account.sign_ins set expires_at = now() where user_id = $1`,
		"idle": `update account.sign_ins set last_seen_at = now() - interval '2 hours 1 second'
			where user_id = $1`,
		"disabled": `update account.users set disabled_at = now() where id = $1`,
	} {
		ada := site.Member()
		browser := site.SignedIn(ada)
		browser.Get("/login").As(name).Wants(http.StatusSeeOther)
		site.Fixture.Exec(sql, ada.ID)
		browser.Get("/login").As(name).Wants(http.StatusOK)
	}
}

func TestSession_UseResetsIdleTime(t *testing.T) {
	site := shared(t)
	ada := site.Member()
	browser := site.SignedIn(ada)
	site.Fixture.Exec(
		`update account.sign_ins set last_seen_at = now() - interval '1 hour 59 minutes' where user_id = $1`, ada.ID)
	browser.Get("/login")
	site.CountIs(1, `select count(*) from account.sign_ins
		where user_id = $1 and last_seen_at > now() - interval '1 minute'`, ada.ID)
}

func TestSignIn_EndsPreviousSessionOfBrowser(t *testing.T) {
	site := shared(t)
	ada, bob := site.Member(), site.Member()
	browser := site.SignedIn(ada)
	before, session := browser.Cookies(), browser.Session()
	browser.Post("/login", map[string][]string{"email": {bob.Email}, "password": {browsertest.Password}})
	if after := browser.Session(); after == "" || after == session {
		t.Error("the session's identifier is the same after the sign-in")
	}
	site.CountIs(1, `select count(*) from account.sign_ins
		where user_id = $1 and ended_at is not null`, ada.ID)
	fixed := site.Browser()
	fixed.SetCookies(before)
	fixed.Get("/login").Wants(http.StatusOK)
}

// ui.TestLocalPath_RefusesOtherHosts has the paths that are local.
func TestSignIn_RedirectsOnlyToLocalPaths(t *testing.T) {
	site := shared(t)
	ada := site.Member()
	const home = "/settings/user"
	for asked, want := range map[string]string{
		"":                           home,
		"/oauth/authorize?a=1&b=%2F": "/oauth/authorize?a=1&b=%2F",
		"//evil.example":             home,
		"https://evil.example/":      home,
	} {
		form := url.Values{"email": {ada.Email}, "password": {browsertest.Password}, "return": {asked}}
		site.Browser().Post("/login", form).As(asked).Wants(http.StatusSeeOther).LeadsTo(want)
	}
	site.Browser().Get("/login?return="+url.QueryEscape("//evil.example")).Keeps("/login", "return", "")
	site.SignedIn(ada).Get("/login?return=//evil.example").LeadsTo(home)
}
