package e2e

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// An endpoint is added and tested in a real browser. No page is wider than a phone or a laptop, however long the URL is.
func TestBrowser_AddsWebhook(t *testing.T) {
	t.Parallel()
	_, _, browser := atDevelopers(t, harness.Telephone)
	const form = `form[action="/settings/developers/webhooks"]`
	fits := func(page string) {
		t.Helper()
		for _, screen := range []harness.Screen{harness.Laptop, harness.Telephone} {
			browser.Show(screen, "light")
			if over := browser.Overflow(); over > 0 {
				t.Errorf("%s is %d pixels wider than a screen of %d", page, over, screen.Width)
			}
		}
	}
	address := "https://hooks.example.invalid/" + strings.Repeat("almoner", 20)
	browser.Click(`.tabs a[href^="/settings/webhooks"]`)
	browser.Click(`a[href^="/settings/webhooks/new"]`)
	browser.See("#webhook-url")
	browser.Fill("#webhook-url", address)
	browser.Click(form + " .button-main")
	browser.See("#problem a")
	browser.Click("#problem a")
	typed := harness.Evaluate[string](browser, `document.getElementById("webhook-url").value`)
	if typed != address {
		t.Errorf("the URL is now %q", typed)
	}
	browser.Click(form + ` input[value="programme.created"]`)
	fits("the form")
	browser.Click(form + " .button-main")
	browser.See("#shown-value")
	met.AddAll(harness.Evaluate[string](browser, `document.getElementById("shown-value").value`))
	fits("the page with the secret")
	browser.Click(`h3 a[href*="/settings/developers/webhook?"]`)
	browser.See("#deliveries")
	fits("the page of the endpoint")
	browser.Click(`form[action="/settings/developers/webhooks/test"] button`)
	browser.See("ol.rows li")
	fits("the log")
	wantsText(t, "the log", browser, "A test event is on its way")
	sound(t, "webhooks", browser) // the form without a kind gets status 400
}
