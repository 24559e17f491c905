package e2e

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// An endpoint is added and tested in a real browser. No page is wider than the screen, however long the URL is.
func TestBrowser_AddsWebhook(t *testing.T) {
	t.Parallel()
	for _, screen := range []harness.Screen{harness.Telephone, harness.Laptop} {
		_, _, browser := atDevelopers(t, screen)
		const form = `form[action="/settings/developers/webhooks"]`
		fits := func(page string) {
			t.Helper()
			if wide := harness.Evaluate[int64](browser, `document.documentElement.scrollWidth`); wide > screen.Width {
				t.Errorf("%s is %d pixels wide on a screen of %d", page, wide, screen.Width)
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
		if text := browser.Text(); !strings.Contains(text, "A test event is on its way") {
			t.Error(text)
		}
		for _, complaint := range browser.Complaints() {
			if !strings.Contains(complaint, "status of 400") { // of the form without a kind
				t.Error(complaint)
			}
		}
	}
}
