package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

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
				"required": true},
			{"name": "desk", "label": "Which desk do you know?", "type": "text", "required": true,
				"askIf": {"field": "help", "equals": "Desk"}}]`),
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
	wantsText(t, "the page", browser, "Nifer yr atebion i’w cywiro: 3.")
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

// unsent is the alert that says why the answers were not sent.
const unsent = "#offline:not([hidden])"

// typesAnswers fills in what formWithTexts requires. A form that is sent within two seconds is refused.
func typesAnswers(browser Browser, address string) {
	browser.OpenAndSee(address, "button")
	browser.Fill("#f0", "Ada Okafor")
	browser.Fill("#f1", "ada@example.org")
	browser.Click("#f5")
	time.Sleep(2 * time.Second)
}

// wantsSent checks how many submissions the form has.
func wantsSent(t *testing.T, p *harness.Product, ws harness.TestWorkspace, id string, want int) {
	t.Helper()
	sent := p.In(ws.Workspace, ws.Token).Get(t, "/v1/engage/forms/"+id+"/submissions").Wants(t, 200).Object(t)
	if n := len(sent["data"].([]any)); n != want {
		t.Errorf("%d submissions, want %d", n, want)
	}
}

// A form that is sent without a connection keeps its answers, says so, and is sent when there is one: by itself, or
// with the button if an answer was changed.
func TestFormPage_KeepsAnswersWithoutConnection(t *testing.T) {
	p, ws := inWorkspace(t)
	key, id := formWithTexts(t, p, ws, "en")
	browser := newBrowser(t, p, harness.Telephone)
	typesAnswers(browser, p.BaseURL+"/v1/engage/public/forms/"+key+"/embed")
	browser.Fill("#f1", " and more") // no address
	browser.Offline(true)
	browser.ClickAndSee("button[type=submit]", unsent)
	wantsText(t, "the page", browser, "You are offline", "your answers are still on this page")
	browser.Offline(false)
	browser.See(".wrong") // it was sent by itself; a refusal replaces the page, with the answers
	harness.Evaluate[string](browser, `document.getElementById("f1").value = "ada@example.org"`)
	browser.Offline(true)
	browser.ClickAndSee("button[type=submit]", unsent)
	browser.Fill("#f0", " (she)")
	if browser.Offline(false); harness.Evaluate[bool](browser, `document.querySelector("`+unsent+`") !== null`) {
		t.Error("the page would send answers that are being changed")
	}
	typed := harness.Evaluate[string](browser, `f0.value + " " + f1.value`)
	if typed != " (she)Ada Okafor ada@example.org" {
		t.Errorf("the page has %q", typed)
	}
	browser.ClickAndSee("button[type=submit]", ".thanks")
	wantsSent(t, p, ws, id, 1)
}

// loseResponse has the page send its next request, and lose the response.
const loseResponse = `(real => { window.fetch = (...request) => real(...request).then(() => {
	window.fetch = real; throw new TypeError("lost") }); return true })(window.fetch)`

// After a reload the form has what was typed, but no consent. Sent again after the response was lost, it counts once.
func TestFormPage_KeepsDraftInTab(t *testing.T) {
	p, ws := inWorkspace(t)
	key, id := formWithTexts(t, p, ws, "en")
	browser, address := newBrowser(t, p, harness.Laptop), p.BaseURL+"/v1/engage/public/forms/"+key+"/embed"
	typesAnswers(browser, address)
	browser.Click("#f3")
	harness.Evaluate[bool](browser, loseResponse)
	browser.ClickAndSee("button[type=submit]", unsent)
	wantsText(t, "the page", browser, "We do not know whether your answers arrived", "They will count only once.")
	browser.OpenAndSee(address, ".note")
	wantsText(t, "the page", browser, "We filled in what you typed here before.")
	const typed = `[f0.value, f1.value, f3.checked, f5.checked].join()`
	if got := harness.Evaluate[string](browser, typed); got != "Ada Okafor,ada@example.org,true,false" {
		t.Errorf("after a reload: %s", got)
	}
	browser.Click("#f5")
	browser.ClickAndSee("button[type=submit]", ".thanks")
	wantsSent(t, p, ws, id, 1)
	kept := harness.Evaluate[int](browser, `sessionStorage.length`)
	browser.OpenAndSee(address, "button[type=submit]")
	if got := harness.Evaluate[string](browser, typed); got != ",,false,false" || kept != 0 {
		t.Errorf("after it was sent: %s, %d drafts", got, kept)
	}
	browser.Fill("#f0", "Ada")
	browser.OpenAndSee(address, ".note")
	browser.Click(".note button") // another person, at the same computer
	browser.Leave(".note")
	browser.See("button[type=submit]")
	if got := harness.Evaluate[string](browser, typed); got != ",,false,false" {
		t.Errorf("after it was cleared: %s", got)
	}
	wantsSent(t, p, ws, id, 1)
}

// Answers that are corrected after the response was lost are sent as new ones: nothing that was typed is lost.
func TestFormPage_KeepsCorrectionsOfDraft(t *testing.T) {
	p, ws := inWorkspace(t)
	key, id := formWithTexts(t, p, ws, "en")
	browser, address := newBrowser(t, p, harness.Laptop), p.BaseURL+"/v1/engage/public/forms/"+key+"/embed"
	for i, opens := range []func(){
		func() { browser.OpenAndSee(address, ".note") },
		func() {
			browser.Fill("#f0", "(she) ")
			browser.ClickAndSee("button[type=submit]", "main a.button") // the page's token was used
			wantsText(t, "the page", browser, "You already sent this form")
			browser.ClickAndSee("main a.button", ".note")
		},
	} {
		typesAnswers(browser, address)
		harness.Evaluate[bool](browser, loseResponse)
		browser.ClickAndSee("button[type=submit]", unsent)
		opens()
		browser.Fill("#f4", "Corrected.")
		browser.Click("#f5")
		time.Sleep(2 * time.Second)
		browser.ClickAndSee("button[type=submit]", ".thanks")
		wantsSent(t, p, ws, id, 2*(i+1))
	}
}

// The form stays filled in if the service takes too long, does not answer or has had too many submissions.
func TestFormPage_KeepsAnswersOfBusyService(t *testing.T) {
	p, ws := inWorkspace(t)
	key, id := formWithTexts(t, p, ws, "en")
	path := "/v1/engage/public/forms/" + key
	browser := newBrowser(t, p, harness.Telephone)
	typesAnswers(browser, p.BaseURL+path+"/embed")
	says := func(words string) {
		t.Helper()
		browser.ClickAndSee("button[type=submit]", unsent)
		wantsText(t, "the page", browser, words, "still on this page")
		if got := harness.Evaluate[string](browser, `f0.value + f5.checked + offline.querySelectorAll(
			":scope > :not([hidden])").length`); got != "Ada Okafortrue1" {
			t.Errorf("%s: the page has %q", words, got)
		}
	}
	release := p.Database.Hold(t, `select from resource.forms where id = $1 for update`, id)
	defer release()
	harness.Evaluate[bool](browser, `(window.late = window.setTimeout,
		window.setTimeout = (next, wait) => { if (wait === 30000) next(); return 1 }, true)`)
	says("We do not know whether your answers arrived")
	harness.Evaluate[bool](browser, `(window.setTimeout = window.late, true)`)
	says("We cannot accept your answers at the moment")
	release()
	harness.Evaluate[bool](browser, `(Promise.all(Array.from({length: 200}, () => fetch("`+path+`/embed", {
		method: "POST", body: new URLSearchParams({submissionToken: "none"})}))).then(all => {
		window.limited = all.some(one => one.status === 429) }), true)`)
	await.True(t, "there were too many submissions", func() bool {
		return harness.Evaluate[bool](browser, `window.limited === true`)
	})
	says("Too many forms were sent")
	sound(t, "the page", browser, http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusBadRequest)
}

// A question with a condition is shown, and required, only if an earlier answer asks it. Without a script, it is shown
// and says when to answer it.
func TestFormPage_AsksOnCondition(t *testing.T) {
	p, ws := inWorkspace(t)
	key, id := formWithTexts(t, p, ws, "en")
	address := p.BaseURL + "/v1/engage/public/forms/" + key + "/embed"
	plain := newBrowser(t, p, harness.Telephone)
	plain.WithoutScript()
	plain.OpenAndSee(address, "#f6")
	wantsText(t, "the page without scripts", plain, "Please answer this if, for")
	for _, screen := range []harness.Screen{harness.Telephone, harness.Laptop} {
		browser := newBrowser(t, p, screen)
		typesAnswers(browser, address)
		const state = `[f6.checkVisibility(), f6.disabled, f6.required, said.textContent].join()`
		state0 := harness.Evaluate[string](browser, state)
		choose := func(option string) string {
			harness.Evaluate[bool](browser, `(f2.value = "`+option+`", ["input", "change"].forEach(
				kind => f2.dispatchEvent(new Event(kind, {bubbles: true}))), true)`)
			return harness.Evaluate[string](browser, state)
		}
		desk := choose("Desk")
		browser.Fill("#f6", "The front desk")
		garden := choose("Garden")
		for got, want := range map[string]string{
			state0: "false,true,false,",
			desk:   "true,false,true,New question: Which desk do you know?",
			garden: "false,true,false,Question removed: Which desk do you know?",
		} {
			if got != want {
				t.Errorf("%d wide: %q, want %q", screen.Width, got, want)
			}
		}
		sentOf := func() string {
			browser.ClickAndSee("button[type=submit]", ".thanks")
			return string(p.In(ws.Workspace, ws.Token).Get(t, "/v1/engage/forms/"+id+"/submissions?limit=1").Body)
		}
		if screen == harness.Telephone {
			sent := sentOf()
			if !strings.Contains(sent, `"help":"Garden"`) || strings.Contains(sent, "The front desk") {
				t.Errorf("what is hidden was sent: %s", sent)
			}
			continue
		}
		if again := choose("Desk"); again != desk || harness.Evaluate[string](browser, `f6.value`) != "The front desk" {
			t.Errorf("asked again: %s", again)
		}
		if sent := sentOf(); !strings.Contains(sent, `"desk":"The front desk"`) {
			t.Errorf("what is shown was not sent: %s", sent)
		}
		sound(t, "the page", browser)
	}
}

// Each language fits both screens, in its direction, also when answers are refused and when there is no connection.
func TestFormPage_LanguagesFit(t *testing.T) {
	p, ws := inWorkspace(t)
	key, _ := formWithTexts(t, p, ws, "en")
	browser := newBrowser(t, p, harness.Telephone)
	for _, lang := range []string{"ar", "cy", "de", "en", "es", "fr", "pl", "pt", "ro", "so", "uk", "ur"} {
		browser.OpenAndSee(p.BaseURL+"/v1/engage/public/forms/"+key+"/embed?lang="+lang, "button")
		browser.ClickAndSee("button[type=submit]", ".alert:not([hidden])")
		harness.Evaluate[bool](browser, `offline.hidden = offline.children[0].hidden = false, true`)
		const state = `document.documentElement.lang.slice(0, 2) +
			getComputedStyle(document.querySelector("h1")).direction`
		want := lang + "ltr"
		if lang == "ar" || lang == "ur" {
			want = lang + "rtl"
		}
		if got := harness.Evaluate[string](browser, state); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		for _, screen := range []harness.Screen{harness.Laptop, harness.Telephone} {
			browser.Show(screen, "light")
			if over := browser.Overflow(); over > 0 {
				t.Errorf("%s, %d wide: %d pixels wider than the screen", lang, screen.Width, over)
			}
		}
	}
	sound(t, "the page", browser, http.StatusBadRequest)
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

// The page of a language that does not exist is in the form's, and says so in the console.
func TestFormPage_ConsoleNamesUnknownLanguage(t *testing.T) {
	p, ws := inWorkspace(t)
	key, _ := formWithTexts(t, p, ws, "cy")
	browser := newBrowser(t, p, harness.Laptop)
	warnings := make(chan string, 10)
	must(t, chromedp.Listen(browser.Window(), func(event any) {
		if e, is := event.(*runtime.EventConsoleAPICalled); is && e.Type == "warning" {
			warnings <- string(e.Args[0].Value)
		}
	}))
	browser.OpenAndSee(p.BaseURL+"/v1/engage/public/forms/"+key+"/embed?frame=1&lang=tlh", `html[lang="cy"] button`)
	await.True(t, "the console has a warning", func() bool { return len(warnings) > 0 })
	const want = `"Almoner: the language \"tlh\" is not available. The form is in \"cy\"."`
	if got := <-warnings; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
