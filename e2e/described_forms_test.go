package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

const forms = "/v1/engage/forms"

// The workspace's side of forms: the responses that are described of forms alone (contract, section 6).
func TestDescribed_WorkspaceForms(t *testing.T) {
	p := inParallel(t)
	api := workspaceOf(p, p.NewWorkspace(t))
	fields := []map[string]any{{"name": "email", "label": "E-mail", "type": "email"}}
	made := keyed(t, api, http.MethodPost, forms, map[string]any{"title": "Volunteer", "fields": fields,
		"allowedOrigins": []string{}}, http.StatusCreated)
	form := forms + "/" + made.Object(t)["id"].(string)
	tag := api.Get(t, form).Wants(t, http.StatusOK).Header.Get("ETag")
	closed := map[string]any{"enabled": false}
	keyed(t, api.With("If-Match", tag), http.MethodPatch, form, closed, http.StatusOK)
	api.With("If-Match", tag).JSON(t, http.MethodPatch, form, closed).
		WantsNested(t, http.StatusPreconditionFailed, "PRECONDITION_FAILED")
	api.Get(t, forms+"?limit=1").Wants(t, http.StatusOK)
	api.Get(t, form+"/submissions").Wants(t, http.StatusOK)
}

// A submission by a script of the allowed website.
func TestDescribed_Submissions(t *testing.T) {
	p, ws := inWorkspace(t)
	made, form := newForm(t, p, ws)
	page := p.API().With("Origin", website)
	for _, path := range []string{form, form + "/submissions"} {
		page.With("Access-Control-Request-Method", "POST").Send(t, http.MethodOptions, path, "", "").
			Wants(t, http.StatusNoContent)
	}
	token := page.Get(t, form).Wants(t, http.StatusOK).Object(t)["submissionToken"]
	submission := map[string]any{"submissionToken": token, "answers": helper()}
	invalid := map[string]any{"submissionToken": token, "answers": map[string]any{}}
	page.JSON(t, http.MethodPost, form+"/submissions", invalid).
		WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	accepted := page.JSON(t, http.MethodPost, form+"/submissions", submission).Wants(t, http.StatusAccepted).Object(t)
	page.JSON(t, http.MethodPost, form+"/submissions", submission).WantsNested(t, http.StatusConflict, "CONFLICT")
	page.Get(t, accepted["statusUrl"].(string)[len(p.BaseURL):]).Wants(t, http.StatusOK)
	if n := submissions(t, p, made); n != 1 {
		t.Errorf("%d submissions", n)
	}
}

// The page of a form works without script. It shares its rate limit with submissions by script.
func TestDescribed_FormPage(t *testing.T) {
	p, ws := inWorkspace(t)
	_, form := newForm(t, p, ws)
	api := p.API()
	token, _ := api.Get(t, form).Wants(t, http.StatusOK).Object(t)["submissionToken"].(string)
	filled := url.Values{
		"submissionToken": {token}, "a.name": {"Ada"}, "a.email": {"ada@example.org"}, "a.privacy": {"yes"},
	}
	api.Form(t, form+"/embed", url.Values{"submissionToken": {token}}).Wants(t, http.StatusBadRequest)
	time.Sleep(2200 * time.Millisecond) // faster submissions are rejected
	api.Get(t, form+"/embed").Wants(t, http.StatusOK)
	api.Get(t, "/v1/engage/public/embed.js").Wants(t, http.StatusOK)
	sent := api.Form(t, form+"/embed", filled).Wants(t, http.StatusSeeOther)
	api.Get(t, sent.Header.Get("Location")).Wants(t, http.StatusOK)
	api.Form(t, form+"/embed", filled).Wants(t, http.StatusSeeOther) // the same answers count once
	api.Form(t, form+"/embed", change(filled, "a.name", "Ben")).Wants(t, http.StatusConflict)
	var senders sync.WaitGroup // concurrent, to stay within a minute on slow machines
	for range 8 {
		senders.Go(func() {
			for range 15 {
				if _, err := api.Try(t, http.MethodPost, form+"/submissions", "application/json", "{}"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	senders.Wait()
	api.JSON(t, http.MethodPost, form+"/submissions", "{}").WantsRetryAfter(t).
		WantsNested(t, http.StatusTooManyRequests, "RATE_LIMITED")
	api.Form(t, form+"/embed", filled).WantsRetryAfter(t).Wants(t, http.StatusTooManyRequests)
}

// The pages of the documentation with their script, in a real browser.

// A developer finds an operation of another page and sends it with a token, by keyboard alone.
func TestDescribed_FindsAndTriesOperationByKeyboard(t *testing.T) {
	p, ws := inWorkspace(t)
	browser := newBrowser(t, p, harness.Laptop)
	browser.OpenAndSee(p.BaseURL+"/v1/docs/webhooks", ".wide .filter input")
	focus(t, browser, "Use your token on these pages")
	browser.Press(EnterKey)
	focus(t, browser, "Token")
	browser.Press(ws.Token)
	focus(t, browser, "Workspace ID")
	browser.Press(ws.Workspace.ID)
	focus(t, browser, "Clear both")
	browser.Press("/")
	if at := browser.Focused(); at != "Search the documentation" {
		t.Errorf("the key / leads to %q", at)
	}
	browser.Press("list programmes")
	wantsText(t, "the contents", browser, "1 result")
	if shown := harness.Evaluate[string](browser, `[...document.querySelectorAll(".wide li a")]
		.filter(link => link.checkVisibility()).map(link => link.textContent).join()`); shown !=
		"Programmes,List programmes" {
		t.Errorf("the search shows %q", shown)
	}
	browser.Press(EnterKey)
	browser.See("#listProgrammes .tabs")
	focus(t, browser, "Python")
	browser.Press(EnterKey)
	if shown := harness.Evaluate[bool](browser, `[...document.querySelectorAll("figure.request details[open]")]
		.every(one => one.dataset.language === "Python")`); !shown {
		t.Error("another language is shown")
	}
	focus(t, browser, "Try it")
	browser.Press(EnterKey)
	if at := browser.Focused(); at != "GET" {
		t.Errorf("the focus is at %q", at)
	}
	focus(t, browser, "Send")
	browser.Press(EnterKey)
	wantsLine(t, browser, "Status 200")
	wantsText(t, "the page", browser, `"data": []`)
	wantsToken(t, browser, ws.Token)
	sound(t, "the page", browser)
}

// focus presses the Tab key until the element with the text has the focus.
func focus(t *testing.T, browser Browser, text string) {
	t.Helper()
	var seen []string
	for range 60 {
		browser.Press(TabKey)
		at := browser.Focused()
		if at == text {
			return
		}
		seen = append(seen, at)
	}
	t.Fatalf("%s cannot be reached: %q", text, seen)
}

// wantsLine waits for the status line of a request.
func wantsLine(t *testing.T, browser Browser, line string) {
	t.Helper()
	await.NoError(t, func() error {
		got := harness.Evaluate[string](browser, `(document.querySelector(".try p") || {}).textContent || ""`)
		if !strings.HasPrefix(got, line) {
			return fmt.Errorf("the line says %q, not %q", got, line)
		}
		return nil
	})
}

// wantsToken checks that a pasted token is only in its field and in sessionStorage.
func wantsToken(t *testing.T, browser Browser, token string) {
	t.Helper()
	if kept := harness.Evaluate[string](browser, `sessionStorage.getItem("almoner.token")`); kept != token {
		t.Error("the token is not kept for the tab")
	}
	if elsewhere := harness.Evaluate[bool](browser, `localStorage.length > 0 || document.cookie !== ""`); elsewhere {
		t.Error("the page stores more than in the tab")
	}
	if shown := harness.Evaluate[bool](browser, fmt.Sprintf(
		`document.documentElement.outerHTML.includes(%q) || location.href.includes(%q)`,
		token,
		token,
	)); shown {
		t.Error("the page shows the token")
	}
}

// The token is sent only to the API, whatever the path is, and only with requests that need it.
func TestDescribed_TokenIsSentOnlyToThisAPI(t *testing.T) {
	p, ws := inWorkspace(t)
	browser := newBrowser(t, p, harness.Telephone)
	browser.OpenAndSee(p.BaseURL+"/v1/docs#listProgrammes", "#listProgrammes .tabs")
	browser.ClickAndSee(`#listProgrammes figcaption > button:last-of-type`, `#listProgrammes .try`)
	browser.Click(`#listProgrammes .try button`)
	wantsLine(t, browser, "Paste a token")
	browser.Fill(`#keys input[name="token"]`, "not a token")
	if says := harness.Evaluate[string](browser, `document.querySelector("#keys .wrong").textContent`); says == "" {
		t.Error("the page takes any token")
	}
	harness.Evaluate[bool](browser, `(document.querySelector('#keys input[name="token"]').value = "") === ""`)
	browser.Fill(`#keys input[name="token"]`, ws.Token)
	for _, path := range []string{
		"https://elsewhere.example/v1/programmes", "//elsewhere.example/v1/programmes",
		`\\\\elsewhere.example/v1/programmes`, "/v1/../authorize", "javascript:alert(1)", "/mcp",
	} {
		harness.Evaluate[bool](browser, fmt.Sprintf(`(document.querySelector(".try input").value = %q) !== ""`, path))
		browser.Click(`#listProgrammes .try button`)
		wantsLine(t, browser, "The path must begin with /v1/.")
	}
	harness.Evaluate[bool](browser, `(addEventListener("securitypolicyviolation", () => { window.blocked = true }),
		fetch("https://elsewhere.example/").catch(() => { window.refused = true }), true)`)
	await.True(t, "the policy blocks the request to another host", func() bool {
		return harness.Evaluate[bool](browser, `window.refused === true && window.blocked === true`)
	})
	if hosts := browser.Hosts(); len(hosts) != 1 {
		t.Errorf("requests to %v", hosts)
	}
	browser.Click(`#keys button`)
	if kept := harness.Evaluate[bool](browser, `sessionStorage.getItem("almoner.token") !== null`); kept {
		t.Error("the token was not forgotten")
	}
}

func TestDescribed_CopiesExampleWithToken(t *testing.T) {
	p, ws := inWorkspace(t)
	browser := newBrowser(t, p, harness.Laptop)
	browser.OpenAndSee(p.BaseURL+"/v1/docs/programmes#listProgrammes", "#listProgrammes .tabs button")
	browser.Click("#keys summary")
	// A browser without a window may have no clipboard, so the page writes to this one.
	harness.Evaluate[bool](browser, `(Object.defineProperty(navigator, "clipboard", {value: {
		writeText: text => { window.copied = text; return Promise.resolve(); }}}), true)`)
	copied := func() string {
		browser.Click(`#listProgrammes figure.request figcaption > button`)
		return harness.Evaluate[string](browser, `window.copied`)
	}
	if text := copied(); !strings.Contains(text, `-H "Authorization: Bearer $TOKEN"`) {
		t.Errorf("%s", text)
	}
	browser.Fill(`#keys input[name="token"]`, ws.Token)
	browser.Fill(`#keys input[name="tenant"]`, ws.Workspace.ID)
	for language, want := range map[string]string{
		"curl":       `-H "Authorization: Bearer ` + ws.Token + `"`,
		"Go":         `request.Header.Set("Authorization", "Bearer "+"` + ws.Token + `")`,
		"JavaScript": `"Authorization": "Bearer " + "` + ws.Token + `"`,
		"Python":     `"Authorization": "Bearer " + "` + ws.Token + `"`,
	} {
		harness.Evaluate[bool](browser, fmt.Sprintf(`([...document.querySelectorAll("#listProgrammes .tabs button")]
			.find(one => one.textContent === %q).click(), true)`, language))
		if text := copied(); !strings.Contains(text, want) || !strings.Contains(text, ws.Workspace.ID) {
			t.Errorf("%s: the token is not in what was copied", language)
		}
	}
}

// The documentation works without script: it loads nothing else, fits the narrowest screen, and its links lead to their
// targets, also those that were made when it was one page.
func TestDescribed_DocumentationPageFits(t *testing.T) {
	p := inParallel(t)
	browser := newBrowser(t, p, harness.Narrowest)
	browser.WithoutScript()
	browser.OpenAndSee(p.BaseURL+"/v1/docs#changeProgramme", "#changeProgramme:target")
	browser.ClickAndSee("#changeProgramme a", ".body#changeProgramme:target .access")
	sound(t, "the page", browser)
	if over := browser.Overflow(); over > 0 {
		t.Errorf("%d pixels wider than the screen", over)
	}
	top := harness.Evaluate[float64](browser, `document.querySelector("#changeProgramme").getBoundingClientRect().top`)
	if top < 0 || top > 200 {
		t.Errorf("the link's target is at %f pixels", top)
	}
	styled := harness.Evaluate[string](browser, `getComputedStyle(document.querySelector("pre")).backgroundColor`)
	if styled == "rgba(0, 0, 0, 0)" {
		t.Error("the content security policy blocks the style")
	}
}

// Each page of the documentation has a length that people read, on a laptop and on a phone.
func TestDescribed_PagesOfDocumentationAreShort(t *testing.T) {
	p := inParallel(t)
	browser := newBrowser(t, p, harness.Laptop)
	browser.Open(p.BaseURL + "/v1/docs")
	pages := harness.Evaluate[[]string](browser,
		`[...document.querySelectorAll(".wide .title")].map(link => link.href)`)
	if len(pages) < 10 {
		t.Fatalf("only the pages %q", pages)
	}
	for _, page := range pages {
		for _, size := range []struct {
			screen harness.Screen
			most   int
		}{{harness.Laptop, 8_000}, {harness.Telephone, 10_000}} {
			browser.Show(size.screen, "light")
			browser.Open(page)
			height := harness.Evaluate[int](browser, `document.documentElement.scrollHeight`)
			if height > size.most || height < 700 {
				t.Errorf("%s: %d pixels at %d", page, height, size.screen.Width)
			}
			if over := browser.Overflow(); over > 0 {
				t.Errorf("%s: %d pixels wider than the screen", page, over)
			}
		}
	}
}

// A browser at the address of the API, and at one that does not exist, gets a page that leads on.
func TestDescribed_BrowserAtAddressOfAPI(t *testing.T) {
	p := inParallel(t)
	browser := newBrowser(t, p, harness.Telephone)
	for _, path := range []string{"/", "/v1/nothing"} {
		browser.OpenAndSee(p.BaseURL+path, "main h1")
		browser.ClickAndSee(`a[href="/v1/docs"]`, "#operations")
	}
	browser.OpenAndSee(p.BaseURL+"/", "main h1")
	browser.ClickAndSee(`a[href="`+p.AppURL+`/"]`, `input[name="password"]`)
}
