package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// The name, colour and logo of a deployment are on its pages and in its mails. axe-core finds no violation in either
// colour scheme.
func TestBrowser_ShowsBrandOfDeployment(t *testing.T) {
	t.Parallel()
	logo := filepath.Join(t.TempDir(), "logo.svg")
	must(t, os.WriteFile(logo, []byte(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9" width="99" height="99">
		<circle cx="4" cy="4" r="4" fill="#7a1fa2"/></svg>`), 0o644))
	s := harness.Private(t, harness.Options{Mailbox: true, Settings: map[string]string{
		"ALMONER_BRAND_NAME":   "Harbour Trust",
		"ALMONER_BRAND_COLOUR": "#7a1fa2",
		"ALMONER_BRAND_LOGO":   logo,
	}})
	p := harness.NewProduct(t, s, &met)
	ws := p.NewWorkspace(t)
	browser := newBrowser(t, p, harness.Laptop)
	var inspected []int
	look := func(page, button string) {
		t.Helper()
		for _, scheme := range []string{"light", "dark"} {
			browser.Show(harness.Laptop, scheme)
			for _, violation := range browser.Violations(&inspected, scheme) {
				t.Errorf("%s, %s: %s", page, scheme, violation)
			}
		}
		browser.Show(harness.Laptop, "light")
		browser.EndTransitions()
		if text := browser.Text(); !strings.Contains(text, "Harbour Trust") || strings.Contains(text, "Almoner") {
			t.Errorf("%s: %s", page, text)
		}
		if got := background(browser, button); got != "rgb(122, 31, 162)" {
			t.Errorf("%s: the button is %s", page, got)
		}
		wide := harness.Evaluate[int](browser, `document.querySelector(".brand img").naturalWidth`)
		if icon := harness.Evaluate[string](browser, `document.querySelector("link[rel=icon]").href`); wide != 99 ||
			icon != harness.Evaluate[string](browser, `document.querySelector(".brand img").src`) {
			t.Errorf("%s: the logo is %d pixels wide, the icon is %s", page, wide, icon)
		}
	}
	connector := ws.Connector(t, harness.ReadProgrammes)
	browser.Open(p.AuthorizeURL(connector.Begin().Query))
	browser.See("#password")
	look("sign-in", "button.button-main")
	browser.SignIn(ws.Owner.Email, ws.Owner.Password)
	browser.See(approveButton)
	look("consent", approveButton)
	if got := background(browser, ".tile-ours"); got != "rgb(122, 31, 162)" {
		t.Errorf("the sign of the workspace is %s", got)
	}
	browser.Open(p.AppURL + "/settings/members/invite")
	browser.See("#invite-email")
	look("settings", "button.button-main")
	current := `getComputedStyle(document.querySelector("[aria-current]")).color`
	if got := harness.Evaluate[string](browser, current); got != "rgb(122, 31, 162)" {
		t.Errorf("the current section is %s", got)
	}
	key, _ := formWithTexts(t, p, ws, "en")
	browser.Open(p.BaseURL + "/v1/engage/public/forms/" + key + "/embed")
	browser.See("button")
	look("form", "button")
	connector.Connect(t, p.Person(t, ws.Owner))
	letter := mailTo(t, s.Mailbox(), ws.Owner.Email, "New connection")
	for _, text := range []string{letter.HTML, letter.Text} {
		if !strings.Contains(text, "Harbour Trust") || strings.Contains(text, "Almoner") {
			t.Errorf("the mail is %s", text)
		}
	}
	if !strings.Contains(letter.HTML, "background:#7a1fa2") {
		t.Errorf("the mail is %s", letter.HTML)
	}
}
