package settings_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// replacement returns the page that replaces the secret of the first application, to which the list links.
func replacement(browser *browsertest.Browser) *browsertest.Page {
	return linked(browser, applications, applications+"/secret?")
}

// tokenReplacement returns the page that replaces the first token.
func tokenReplacement(browser *browsertest.Browser) *browsertest.Page {
	return linked(browser, developers, developers+"/replace?")
}

// linked returns the first page to which another one links with a URL that begins so.
func linked(browser *browsertest.Browser, from, prefix string) *browsertest.Page {
	page := browser.Get(from)
	for _, a := range page.Elements("a") {
		if to := browsertest.Attribute(a, "href"); strings.HasPrefix(to, prefix) {
			return browser.Get(to)
		}
	}
	return page
}

// A leaked secret must not stay valid for a day because the password was mistyped first.
func TestReplaceSecret_WrongPasswordKeepsInput(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := developer(site, perm.ProgrammesRead)
	site.Fixture.Token(ada.ID, perm.ProgrammesRead)
	site.Fixture.Confidential(perm.ProgrammesRead)
	site.Fixture.Confidential(perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	site.Wait(session.Freshness + time.Second)
	for _, path := range []string{apps + "/secret", tokens + "/replace"} {
		for password, words := range map[string]string{
			"wrong": "The password is incorrect.",
			"":      "Enter your password to continue.",
		} {
			page := replacement(browser)
			if path == tokens+"/replace" {
				page = tokenReplacement(browser)
			}
			form := page.Form(path)
			form.Set("password", password)
			form.Set("expire_old", "yes")
			page = browser.Post(path, form)
			field := "password-" + form.Get("id")
			if page.Status != http.StatusBadRequest || !strings.Contains(page.Body, `id="`+field+`"`) ||
				!strings.Contains(page.Body, `id="password-note-`+form.Get("id")+`"`) {
				t.Fatalf("%s, %q: %d %s", path, password, page.Status, page.Text())
			}
			if !page.HasText("Nothing was created.") || !page.HasText(words) || !page.HasText("Your password: ") ||
				!strings.Contains(page.Body, `href="#`+field+`"`) {
				t.Errorf("%s, %q: no link to the field: %s", path, password, page.Text())
			}
			back := page.Form(path)
			if path == apps+"/secret" && (back.Get("id") != form.Get("id") || back.Get("expire_old") != "yes") {
				t.Errorf("the checkbox came back unchecked: %v", back)
			}
		}
	}
	form := replacement(browser).Form(apps + "/secret")
	if form.Has("expire_old") {
		t.Error("the input of a refused form is on a new page")
	}
	form.Set("expire_old", "yes")
	form.Set("password", "wrong")
	retry := browser.Post(apps+"/secret", form).Form(apps + "/secret")
	retry.Set("password", browsertest.Password)
	if page := browser.Post(apps+"/secret", retry); page.Status != http.StatusOK ||
		!page.HasText("The old secret no longer works.") {
		t.Errorf("%d %s", page.Status, page.Text())
	}
	if n := site.Count(`select count(*) from account.client_secrets where client_id = $1`, form.Get("id")); n != 1 {
		t.Errorf("%d secrets are stored", n)
	}
}

// The old secret ends at once if the box is ticked. The user ticks it, and no link that another person sends.
func TestReplaceSecret_LinkTicksNothing(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := developer(site, perm.ProgrammesRead)
	site.Fixture.Confidential(perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	form := replacement(browser).Form(apps + "/secret")
	link := applications + "/secret?tenant=" + form.Get("tenant") + "&id=" + form.Get("id") + "&expire_old=yes"
	page := browser.Get(link)
	if page.Status != http.StatusOK || !strings.Contains(page.Body, `name="expire_old"`) {
		t.Fatalf("%d %s", page.Status, page.Body)
	}
	if filled := page.Form(apps + "/secret"); filled.Has("expire_old") || filled.Get("id") != form.Get("id") {
		t.Errorf("the link filled in %v", filled)
	}
	made := browser.Post(apps+"/secret", page.Form(apps+"/secret"))
	if !made.HasText("The old secret keeps working for 24 hours.") {
		t.Errorf("%d %s", made.Status, made.Text())
	}
}

// A user without a password is sent to reauthentication from the same form.
func TestReplaceSecret_MissingPasswordKeepsInput(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := developer(site, perm.ProgrammesRead)
	site.Fixture.Confidential(perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	site.Fixture.Exec(`update account.users set password_hash = null where id = $1`, ada.ID)
	site.Wait(session.Freshness + time.Second)
	form := replacement(browser).Form(apps + "/secret")
	form.Set("expire_old", "yes")
	page := browser.Post(apps+"/secret", form)
	if !strings.Contains(page.Body, `id="password-`+form.Get("id")+`"`) ||
		page.Form(apps+"/secret").Get("expire_old") != "yes" {
		t.Errorf("%d %s", page.Status, page.Text())
	}
}
