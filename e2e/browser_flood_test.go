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
	const status, form = `form[data-waits] [data-waiting]`, `form[action="/login"]`
	for name, screen := range map[string]harness.Screen{"1280": harness.Laptop, "390": harness.Telephone} {
		browser := newBrowser(t, p, screen)
		browser.Open(p.AppURL + "/login?return=/settings/apps")
		release := keepSignInBusy(t, p)
		browser.SubmitSignIn(reader.Email, reader.Password)
		browser.See(status)
		wantsText(t, "the sign-in page", browser, "Many people are signing in right now", "tries again automatically")
		looks(t, "the waiting sign-in page", browser)
		if *screenshots != "" {
			writePicture(t, "waiting-"+name, browser.Picture())
		}
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
	wantsText(t, "the sign-in page", plain, "Please enter it again and press the button in a few seconds.")
	looks(t, "the refused sign-in page", plain)
	if *screenshots != "" {
		writePicture(t, "refused-390", plain.Picture())
	}
	release()
	kept := harness.Evaluate[[]string](plain, `["email", "password"].map(id => document.getElementById(id).value)`)
	if kept[0] != reader.Email || kept[1] != "" {
		t.Errorf("the form keeps %q", kept[0])
	}
	plain.Fill("#password", reader.Password)
	plain.Click(form + " button")
	plain.Leave(form)
}
