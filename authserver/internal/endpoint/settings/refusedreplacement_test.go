package settings_test

import (
	"net/http"
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
	if links := page.Links(prefix); len(links) > 0 {
		return browser.Get(links[0])
	}
	return page
}

// A leaked secret must not stay valid for a day because the password was mistyped first.
func TestReplaceSecret_WrongPasswordKeepsInput(t *testing.T) {
	site := own(t)
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
			page.As(path, password).Wants(http.StatusBadRequest, "Nothing was created.", words, "Your password: ").
				Contains(`id="`+field+`"`, `id="password-note-`+form.Get("id")+`"`, `href="#`+field+`"`)
			if path == apps+"/secret" {
				page.Keeps(path, "id", form.Get("id"), "expire_old", "yes")
			}
		}
	}
	form := replacement(browser).Keeps(apps+"/secret", "expire_old", "").Form(apps + "/secret")
	form.Set("expire_old", "yes")
	form.Set("password", "wrong")
	retry := browser.Post(apps+"/secret", form).Form(apps + "/secret")
	retry.Set("password", browsertest.Password)
	browser.Post(apps+"/secret", retry).Wants(http.StatusOK, "The old secret no longer works.")
	site.CountIs(1, `select count(*) from account.client_secrets where client_id = $1`, form.Get("id"))
}

// The old secret ends at once if the box is ticked. The user ticks it, and no link that another person sends.
func TestReplaceSecret_LinkTicksNothing(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	site.Fixture.Confidential(perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	form := replacement(browser).Form(apps + "/secret")
	link := applications + "/secret?tenant=" + form.Get("tenant") + "&id=" + form.Get("id") + "&expire_old=yes"
	page := browser.Get(link)
	page.Wants(http.StatusOK).Contains(`name="expire_old"`)
	page.Keeps(apps+"/secret", "expire_old", "", "id", form.Get("id"))
	browser.Post(apps+"/secret", page.Form(apps+"/secret")).Says("The old secret keeps working for 24 hours.")
}
