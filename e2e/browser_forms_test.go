package e2e

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

// The other forms of the settings (contract, section 7) in a real browser.

// atDevelopers opens the Developers page of a new workspace as its owner.
func atDevelopers(t *testing.T, screen harness.Screen) (*harness.Product, harness.TestWorkspace, Browser) {
	t.Helper()
	p := enter(t)
	ws := p.NewWorkspace(t)
	browser := newBrowser(t, p, screen)
	browser.Open(p.AppURL + "/settings/developers?tenant=" + ws.Workspace.ID)
	browser.SignIn(ws.Owner.Email, ws.Owner.Password)
	return p, ws, browser
}

// fillApplication fills in the form of a new application except its redirect URI, and returns the form's selector.
func fillApplication(browser Browser) (form string) {
	form = `form[action="/settings/developers/apps"]`
	browser.Click(`.tabs a[href^="/settings/applications"]`)
	browser.Click(`a[href^="/settings/applications/new"]`)
	browser.Fill("#app-name", "Gift Aid export")
	browser.Click(form + ` input[name=permissions][value="` + harness.ReadProgrammes + `"]`)
	return form
}

func TestBrowser_RegistersAndDeletesApplication(t *testing.T) {
	t.Parallel()
	p, ws, browser := atDevelopers(t, harness.Telephone)
	form := fillApplication(browser)
	browser.Click(form + " button[type=submit]")
	browser.See("#problem a")
	typed := harness.Evaluate[string](browser, `document.getElementById("app-name").value`)
	if typed != "Gift Aid export" {
		t.Errorf("the name field now contains %q", typed)
	}
	browser.Click("#problem a")
	if at := browser.Focused(); at != "Redirect URIs" {
		t.Errorf("the error summary leads to %q", at)
	}
	browser.Fill("#app-redirects", harness.RedirectURI)
	browser.Click(form + " button[type=submit]")
	browser.See("#shown-value")
	secret := harness.Evaluate[string](browser, `document.getElementById("shown-value").value`)
	met.AddAll(secret)
	id := harness.Evaluate[string](browser, `document.getElementById("shown-client").value`)
	if !regexp.MustCompile(`^alm_cs_[0-9A-Za-z]{40,}$`).MatchString(secret) {
		t.Error("the secret is not shown")
	}
	app := p.DemoConfidential()
	app.ClientID, app.ClientSecret, app.RedirectURI = id, secret, harness.RedirectURI
	tokens := app.Connect(t, p.Person(t, ws.Owner))
	programmes := func() int {
		return p.In(ws.Workspace, tokens.AccessToken).Get(t, "/v1/programmes/programmes").Status
	}
	if status := programmes(); status != http.StatusOK {
		t.Errorf("status %d with its token", status)
	}
	browser.Open(p.AppURL + "/settings/applications?tenant=" + ws.Workspace.ID)
	harness.Evaluate[bool](browser,
		`[...document.querySelectorAll(".row")].filter(r => r.textContent.includes("Gift Aid export"))
		.forEach(r => { r.querySelector("summary").click(); r.querySelector(".button-bad").click() }) || true`)
	browser.Click(`.confirm[open] button[form=delete]`)
	browser.See("[role=status]")
	wantsText(t, "after deleting", browser, "Gift Aid export was deleted")
	if status := programmes(); status != http.StatusUnauthorized {
		t.Errorf("status %d with its token after it was deleted", status)
	}
	if complaints := browser.Complaints(); len(complaints) > 1 { // the 400 response is one
		t.Errorf("errors on the console: %v", complaints)
	}
}

// The response to the second click would report that the application exists already and replace the page that shows
// the secret once.
func TestBrowser_DoubleClickKeepsSecretVisible(t *testing.T) {
	t.Parallel()
	p, ws, browser := atDevelopers(t, harness.Laptop)
	form := fillApplication(browser)
	browser.Fill("#app-redirects", harness.RedirectURI)
	browser.DelayResponses(2 * time.Second)
	harness.Evaluate[bool](
		browser,
		`(button => { button.click(); setTimeout(() => button.click(), 1000); return true })
				(document.querySelector('`+form+` button[type=submit]'))`,
	)
	browser.See("#shown-client")
	if !harness.Evaluate[bool](browser, `document.getElementById("shown-value") !== null`) {
		t.Fatalf("the secret is lost: %s", browser.Text())
	}
	met.AddAll(harness.Evaluate[string](browser, `document.getElementById("shown-value").value`))
	n := p.Database.Count(t, `select count(*) from account.oauth_clients where tenant_id = $1`, ws.Workspace.ID)
	if n != 1 {
		t.Errorf("%d applications", n)
	}
}

// The script that prevents a double submission releases the form when the user returns to the page.
func TestBrowser_FormIsReusableAfterReturn(t *testing.T) {
	t.Parallel()
	_, _, browser := atDevelopers(t, harness.Laptop)
	browser.Click(`.tabs a[href^="/settings/webhooks"]`)
	browser.Click(`a[href^="/settings/webhooks/new"]`)
	browser.See("#webhook-url")
	sent := harness.Evaluate[[]bool](browser, `(() => {
		const one = document.querySelector('form[action="/settings/developers/webhooks"]');
		const other = document.querySelector('form[action="/logout"]');
		const sends = form => form.dispatchEvent(new Event("submit", {bubbles: true, cancelable: true}));
		const before = [sends(one), sends(one), sends(other)];
		dispatchEvent(new PageTransitionEvent("pageshow", {persisted: true}));
		return [...before, sends(one)];
	})()`)
	if want := []bool{true, false, true, true}; !slices.Equal(sent, want) {
		t.Errorf("submissions %v, want %v", sent, want)
	}
}

func TestBrowser_UserRevokesOwnAccess(t *testing.T) {
	p, ws := inWorkspace(t)
	ada := ws.Member(t, harness.ReadProgrammes) // without API access: no Developers tab
	token := p.Database.Token(t, ws.Workspace, ada, harness.ReadProgrammes)
	elsewhere := p.Person(t, ada)
	tokens := ws.Connector(t, harness.ReadProgrammes).Connect(t, elsewhere)
	status := func(credential string) int {
		return p.In(ws.Workspace, credential).Get(t, "/v1/programmes/programmes").Status
	}
	if status(token) != http.StatusOK || status(tokens.AccessToken) != http.StatusOK {
		t.Fatal("the tokens do not work before the test")
	}
	browser := newBrowser(t, p, harness.Laptop)
	browser.Open(p.AppURL + "/settings/apps")
	browser.SignIn(ada.Email, ada.Password)
	browser.See("#live")
	browser.Click(".rows summary.button-bad")
	browser.Click(`details[open] form[action="/settings/apps/disconnect"] button`)
	browser.See("[role=status]")
	if text := browser.Text(); !strings.Contains(text, "You disconnected ") ||
		status(tokens.AccessToken) != http.StatusUnauthorized {
		t.Errorf("after disconnecting: %d %s", status(tokens.AccessToken), text)
	}
	browser.Open(p.AppURL + "/settings/security")
	browser.Click(".rows summary.button-bad")
	browser.Click(`form[action="/settings/security/tokens/revoke"] details[open] button`)
	browser.See("[role=status]")
	if text := browser.Text(); !strings.Contains(text, "was revoked") || status(token) != http.StatusUnauthorized {
		t.Errorf("after revoking: %d %s", status(token), text)
	}
	browser.Open(p.AppURL + "/settings/security") // without the notice, because the next one is awaited
	browser.Click(`form[action="/settings/security/sign-out-others"] button`)
	browser.See("[role=status]")
	wantsText(t, "after signing out elsewhere", browser, "1 other browser was signed out")
	if page := elsewhere.Open(t, p.AppURL+"/settings/user"); page.Status != http.StatusSeeOther {
		t.Errorf("the other browser gets status %d", page.Status)
	}
	silent(t, browser)
}
