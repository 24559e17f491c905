package e2e

import (
	"context"
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// keepSignInBusy makes every check of a password wait, and keeps others waiting for their turns, until release.
func keepSignInBusy(t *testing.T, p *harness.Product) (release func()) {
	t.Helper()
	unlock := p.Database.Hold(t, `lock table account.users in access exclusive mode`)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	form := url.Values{"email": {"stranger@example.org"}, "password": {"wrong"}}
	for range 4 { // a process checks two passwords at once
		stranger := p.Person(t, p.Demo.Users.Outsider)
		all.Go(func() {
			for ctx.Err() == nil {
				_, _ = stranger.Try(t, http.MethodPost, p.AppURL+"/login", "application/x-www-form-urlencoded",
					form.Encode())
			}
		})
	}
	checked := min(max(runtime.NumCPU()/2, 1), 2) // at once, of browsers that are not known
	await.True(t, "the strangers' passwords are checked", func() bool {
		return p.Database.Count(t, `select count(*) from pg_locks where not granted`) >= checked
	})
	return func() {
		stop()
		unlock()
		all.Wait()
	}
}

// While too many passwords are checked, the sign-in page waits and sends the form again by itself, with what was typed
// once. Without scripts it says when to press the button, and keeps the e-mail address but not the password.
func TestBrowser_SignInPageWaitsDuringFlood(t *testing.T) {
	t.Parallel()
	p := harness.NewProduct(t, harness.Private(t, harness.Options{}), &met)
	reader := p.Demo.Users.Reader
	const status, form = `.alert[data-waiting]`, `form[action="/login"]`
	for name, screen := range map[string]harness.Screen{"1280": harness.Laptop, "390": harness.Telephone} {
		browser := newBrowser(t, p, screen)
		browser.Open(p.AppURL + "/login?return=/settings/apps")
		release := keepSignInBusy(t, p)
		browser.SubmitSignIn(reader.Email, reader.Password)
		browser.See(status)
		wantsText(t, "the sign-in page", browser, "Many people are signing in right now", "tries again automatically")
		looks(t, "the waiting sign-in page", browser)
		browser.Fill("#password", "x") // changes nothing: what was typed once is sent
		writePicture(t, "waiting-"+name, browser.Picture())
		release()
		browser.Leave(form)
		if at := harness.Evaluate[string](browser, `location.pathname`); at != "/settings/apps" {
			t.Errorf("the sign-in leads to %s", at)
		}
		sound(t, "the waiting sign-in page", browser, http.StatusTooManyRequests)
		wrong := newBrowser(t, p, screen)
		wrong.Open(p.AppURL + "/login")
		wrong.SubmitSignIn(reader.Email, "wrong")
		wrong.See("#problem")
		wantsText(t, "the sign-in page", wrong, "The e-mail address or password is incorrect.")
		wrong.Fill("#password", reader.Password) // the page keeps the address
		wrong.Click(form + " button")
		wrong.Leave(form)
		sound(t, "the sign-in page", wrong, http.StatusBadRequest)
	}
	plain := newBrowser(t, p, harness.Telephone)
	plain.WithoutScript()
	plain.Open(p.AppURL + "/login")
	release := keepSignInBusy(t, p)
	plain.SubmitSignIn(reader.Email, reader.Password)
	plain.See("#problem")
	wantsText(t, "the sign-in page", plain, "Please wait a few seconds and enter it again.")
	looks(t, "the refused sign-in page", plain)
	writePicture(t, "refused-390", plain.Picture())
	release()
	kept := harness.Evaluate[[]string](plain, `["email", "password"].map(id => document.getElementById(id).value)`)
	if kept[0] != reader.Email || kept[1] != "" {
		t.Errorf("the form keeps %q", kept[0])
	}
	plain.Fill("#password", reader.Password)
	plain.Click(form + " button")
	plain.Leave(form)
}

// answering has the page get this answer of fetch, and keeps what it gives to setTimeout in delays.
func answering(browser Browser, answer string) {
	harness.Evaluate[bool](browser, `window.delays = [], window.sent = 0,
		window.setTimeout = (next, wait) => { delays.push(wait); return 1 },
		Date.now = () => sent > 0 ? 121e3 * (sent - 1) : 0,
		window.fetch = () => { sent++; return `+answer+` }, true`)
}

func busyAnswer(headers string) string {
	return `Promise.resolve(new Response("<p id='refused'>Refused</p>", {status: 429, headers: {` + headers + `}}))`
}

// The page sends a password again only as long as the server is busy and the user waits, and never in a tight loop.
func TestBrowser_WaitingSignInPageIsBounded(t *testing.T) {
	p := inParallel(t)
	const status, readOnly = `.alert[data-waiting]`, `document.querySelector("#email").readOnly`
	browser := newBrowser(t, p, harness.Laptop)
	send := func(answer string) {
		browser.Open(p.AppURL + "/login")
		answering(browser, answer)
		browser.SubmitSignIn("ada@example.org", "a password")
	}
	for name, after := range map[string]string{
		"none": ``, "a date": `, "Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"`, "an hour": `, "Retry-After": "3600"`,
	} {
		send(busyAnswer(`"Almoner-Busy": "1"` + after))
		browser.See(status)
		delays := harness.Evaluate[[]float64](browser, `delays`)
		if len(delays) != 1 || delays[0] < 1000 || delays[0] > 11_000 {
			t.Errorf("Retry-After is %s: the page waits for %v ms", name, delays)
		}
	}
	if !harness.Evaluate[bool](browser, readOnly) {
		t.Error("the fields can be changed while the page waits")
	}
	other := `document.querySelector("main").append(document.createElement("form")),
		document.querySelector("main > form:last-child").dispatchEvent(new SubmitEvent("submit", {bubbles: true})),
		document.querySelector("[data-waiting]").textContent`
	if words := harness.Evaluate[string](browser, other); words != "" || harness.Evaluate[bool](browser, readOnly) {
		t.Errorf("after another form was sent, the page still waits: %s", words)
	}
	send(busyAnswer(``)) // a proxy has removed the other headers
	browser.See("#refused")
	send(`(window.setTimeout = (next, wait, one) => next(one), ` + busyAnswer(`"Almoner-Busy": "1"`) + `)`)
	browser.See("#refused") // after two minutes
	send(`Promise.reject(new TypeError("no connection"))`)
	browser.See(status)
	wantsText(t, "the page without a connection", browser, "Not sent. Check your connection")
	if harness.Evaluate[bool](browser, readOnly) {
		t.Error("the form cannot be sent again")
	}
}
