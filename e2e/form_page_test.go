package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// The page of a public form (contract, section 6) in a real browser: on its own, and on a website.

// formWithTexts creates a form with texts, which the origins may embed, and returns its embed key and id.
func formWithTexts(
	t *testing.T, p *harness.Product, ws harness.TestWorkspace, lang string, origins ...string,
) (key, id string) {
	t.Helper()
	made := p.In(ws.Workspace, ws.Token).JSON(t, "POST", "/v1/engage/forms", map[string]any{
		"title":          "Volunteer with us",
		"introduction":   "We meet on Saturdays at the harbour.\n\nTell us how you would like to help.",
		"thankYou":       "See you on Saturday.",
		"lang":           lang,
		"allowedOrigins": append([]string{}, origins...),
		"fields": json.RawMessage(`[
			{"name": "name", "label": "Your name", "type": "text", "required": true},
			{"name": "email", "label": "E-mail address", "type": "email", "required": true},
			{"name": "help", "label": "How would you like to help?", "type": "select", "options": ["Garden", "Desk"]},
			{"name": "days", "label": "Which days suit you?", "type": "multiselect", "options": ["Friday", "Saturday"]},
			{"name": "about", "label": "Anything else", "type": "textarea"},
			{"name": "privacy", "label": "I agree that you keep my answers for a year.", "type": "consent",
				"required": true}]`),
	}).Wants(t, 201).Object(t)
	return made["embedKey"].(string), made["id"].(string)
}

const maxFormWeight = 60_000

// That the page fits each screen, TestBrowser_AxeFindsNoViolation shows.
func TestFormPage_ShowsLanguageAndColours(t *testing.T) {
	p, ws := inWorkspace(t)
	key, _ := formWithTexts(t, p, ws, "cy")
	browser := newBrowser(t, p, harness.Telephone)
	browser.OpenAndSee(p.BaseURL+"/v1/engage/public/forms/"+key+"/embed", "button")
	sound(t, "the page", browser)
	if weight := browser.TransferSize(); weight > maxFormWeight || weight < 5000 {
		t.Errorf("%d bytes", weight)
	}
	for _, c := range [][2]string{{"light", "rgb(245, 246, 244)"}, {"dark", "rgb(15, 20, 18)"}} {
		browser.Scheme(c[0])
		if got := background(browser, "body"); got != c[1] {
			t.Errorf("in %s colours the page is %s", c[0], got)
		}
	}
	if lang := harness.Evaluate[string](browser, `document.documentElement.lang`); lang != "cy" {
		t.Errorf("the language is %s", lang)
	}
	browser.ClickAndSee("button", ".alert")
	wantsText(t, "the page", browser, "Nifer yr atebion i'w cywiro: 3.")
	// A website chooses the theme of a page in its frame.
	browser.OpenAndSee(p.BaseURL+"/v1/engage/public/forms/"+key+"/embed?frame=1&accent=f2c14e", "button")
	if got := background(browser, "main"); got != "rgb(255, 255, 255)" {
		t.Errorf("in a frame the form is %s", got)
	}
	if got := background(browser, "button"); got != "rgb(242, 193, 78)" {
		t.Errorf("the button is %s", got)
	}
	text := harness.Evaluate[string](browser, `getComputedStyle(document.querySelector("button")).color`)
	if text != "rgb(0, 0, 0)" {
		t.Errorf("the text of the button is %s", text)
	}
}

func background(b Browser, element string) string {
	return harness.Evaluate[string](b, `getComputedStyle(document.querySelector("`+element+`")).backgroundColor`)
}

// newWebsite starts a website with a form on its page. attributes are additional attributes of the script element.
func newWebsite(
	t *testing.T, p *harness.Product, ws harness.TestWorkspace, attributes string,
) (address, formID string) {
	t.Helper()
	var key string
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, `<!doctype html><html lang="en"><meta name="viewport" content="width=device-width">
			<title>Harbour Trust</title><link rel="icon" href="data:,">
			<body style="font-family:sans-serif"><main><h1>Harbour Trust</h1><p>A website with a white page.</p>
			<script src="%s/v1/engage/public/embed.js" data-form="%s" %s async></script></main>`, p.BaseURL, key,
			attributes)
	}))
	t.Cleanup(site.Close)
	key, formID = formWithTexts(t, p, ws, "en", site.URL)
	return site.URL, formID
}

// A user fills in and sends the form on a website, using only the keyboard.
func TestFormPage_OnWebsiteByKeyboard(t *testing.T) {
	p, ws := inWorkspace(t)
	site, id := newWebsite(t, p, ws, "")
	browser := newBrowser(t, p, harness.Telephone)
	browser.Scheme("dark")
	browser.OpenAndSee(site, `iframe[title="Volunteer with us"]`)
	frame := harness.Evaluate[string](browser, `document.querySelector("iframe").style.colorScheme`)
	if frame != "light" {
		t.Errorf("the frame is %s", frame)
	}
	const tab, space, enter = "\t", " ", "\r"
	opened := time.Now()
	browser.Press(tab)
	await.True(t, "the key leads into the frame", func() bool {
		return harness.Evaluate[bool](browser, `document.activeElement.tagName === "IFRAME"`)
	})
	time.Sleep(2 * time.Second) // until the frame takes keys too
	for _, keys := range []string{
		"Ada Okafor", tab, "ada@example.org", tab, "G", tab, space, tab, tab, "Hello", tab, space, tab,
	} {
		browser.Press(keys)
	}
	time.Sleep(max(0, 2100*time.Millisecond-time.Since(opened))) // the page refuses shorter times
	browser.Press(enter)
	path := "/v1/engage/forms/" + id + "/submissions"
	var answer string
	await.True(t, "the submission is stored", func() bool {
		answer = string(p.In(ws.Workspace, ws.Token).Get(t, path).Wants(t, 200).Body)
		return strings.Contains(answer, `"name":"Ada Okafor"`)
	})
	for _, want := range []string{`"help":"Garden"`, `"days":["Friday"]`, `"about":"Hello"`, `"privacy":true`} {
		if !strings.Contains(answer, want) {
			t.Errorf("%s lacks %s", answer, want)
		}
	}
	if hosts := browser.Hosts(); len(hosts) != 2 {
		t.Errorf("requests to %v", hosts)
	}
	silent(t, browser)
	if over := browser.Overflow(); over > 0 {
		t.Errorf("%d pixels wider than the screen", over)
	}
}

// A form that is sent without a connection keeps its answers and says so. It can be sent later, from any page.
func TestFormPage_KeepsAnswersWithoutConnection(t *testing.T) {
	p, ws := inWorkspace(t)
	key, id := formWithTexts(t, p, ws, "en")
	browser := newBrowser(t, p, harness.Telephone)
	browser.Open(p.BaseURL + "/v1/engage/public/forms/" + key + "/embed")
	browser.Fill("#f0", "Ada Okafor")
	browser.Fill("#f1", "not an address")
	browser.Click("#f5")
	send := func(shows string) {
		t.Helper()
		browser.ClickAndSee("button[type=submit]", shows)
	}
	const offline = "#offline:not([hidden])"
	browser.Offline(true)
	send(offline)
	browser.Offline(false)
	send(".wrong") // a refusal replaces the page, with the answers
	harness.Evaluate[string](browser, `document.getElementById("f1").value = "ada@example.org"`)
	browser.Offline(true)
	send(offline)
	wantsText(t, "the page", browser, "They are still on this page.")
	typed := harness.Evaluate[string](browser, `f0.value + " " + f1.value`)
	if typed != "Ada Okafor ada@example.org" {
		t.Errorf("the page has %q", typed)
	}
	browser.Offline(false)
	for thanked := false; !thanked; { // the page refuses to be sent within two seconds
		// Without the mark, an alert of the page that was sent would look like one of the next page.
		harness.Evaluate[bool](browser, `(document.body.dataset.sent = "", true)`)
		send(".thanks, body:not([data-sent]) .alert:not([hidden])")
		thanked = harness.Evaluate[bool](browser, `document.querySelector(".thanks") !== null`)
	}
	path := "/v1/engage/forms/" + id + "/submissions"
	sent := p.In(ws.Workspace, ws.Token).Get(t, path).Wants(t, 200).Object(t)
	if n := len(sent["data"].([]any)); n != 1 {
		t.Errorf("%d submissions", n)
	}
}

func TestFormPage_WebsiteChoosesTheme(t *testing.T) {
	p, ws := inWorkspace(t)
	browser := newBrowser(t, p, harness.Laptop)
	browser.Scheme("dark")
	for attributes, want := range map[string][3]string{ // the frame's address, its scheme and its title
		`data-theme="auto"`: {"frame=1&theme=auto", "light dark", "Volunteer with us"},
		`data-theme="dark" data-accent="#7A1FA2" data-lang="cy" data-title="Help"`: {
			"frame=1&theme=dark&accent=7A1FA2&lang=cy", "dark", "Help",
		},
		`data-theme="blue" data-accent="red;}" data-lang=""`: {"frame=1", "light", "Volunteer with us"},
	} {
		site, _ := newWebsite(t, p, ws, attributes)
		browser.OpenAndSee(site, `iframe[title="`+want[2]+`"]`)
		frame := `document.querySelector("iframe")`
		if got := harness.Evaluate[string](browser, `new URL(`+frame+`.src).search.slice(1)`); got != want[0] {
			t.Errorf("%s: the frame's query is %s", attributes, got)
		}
		if got := harness.Evaluate[string](browser, frame+`.style.colorScheme`); got != want[1] {
			t.Errorf("%s: the frame is %s", attributes, got)
		}
		silent(t, browser)
	}
}
