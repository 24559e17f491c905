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

// volunteerForm returns the body of a form that www.example.org may embed.
func volunteerForm() map[string]any {
	return map[string]any{
		"title": "Volunteer with us", "allowedOrigins": []string{"https://www.example.org"},
		"fields": []map[string]any{
			{"name": "email", "label": "Your e-mail address", "type": "email", "required": true},
		},
	}
}

// madeForm creates a form and returns its id and its public path.
func madeForm(t *testing.T, api harness.API) (id, public string) {
	t.Helper()
	form := api.JSON(t, http.MethodPost, forms, volunteerForm()).Wants(t, http.StatusCreated).Object(t)
	return form["id"].(string), "/v1/engage/public/forms/" + form["embedKey"].(string)
}

// The workspace's side of forms: each response that is described (contract, section 6).
func TestDescribed_WorkspaceForms(t *testing.T) {
	p := inParallel(t)
	api := workspaceOf(p, p.NewWorkspace(t))
	made := keyed(t, api, http.MethodPost, forms, volunteerForm(), http.StatusCreated)
	api.JSON(t, http.MethodPost, forms, map[string]any{"title": ""}).
		WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")

	form := forms + "/" + made.Object(t)["id"].(string)
	tag := api.Get(t, form).Wants(t, http.StatusOK).Header.Get("ETag")
	closed := map[string]any{"enabled": false}
	keyed(t, api.With("If-Match", tag), http.MethodPatch, form, closed, http.StatusOK)
	api.With("If-Match", tag).JSON(t, http.MethodPatch, form, closed).
		WantsNested(t, http.StatusPreconditionFailed, "PRECONDITION_FAILED")
	api.JSON(t, http.MethodPatch, form, map[string]any{"fields": []any{}}).
		WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")

	api.Get(t, forms+"?limit=1").Wants(t, http.StatusOK)
	api.Get(t, forms+"?limit=0").WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	api.Get(t, form+"/submissions").Wants(t, http.StatusOK)
	api.Get(t, form+"/submissions?cursor=x").WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
}

// A submission by a script of the allowed website.
func TestDescribed_Submissions(t *testing.T) {
	p := inParallel(t)
	ws := workspaceOf(p, p.NewWorkspace(t))
	id, form := madeForm(t, ws)
	page := p.API().With("Origin", "https://www.example.org")
	for _, path := range []string{form, form + "/submissions"} {
		page.With("Access-Control-Request-Method", "POST").Send(t, http.MethodOptions, path, "", "").
			Wants(t, http.StatusNoContent)
	}
	token := page.Get(t, form).Wants(t, http.StatusOK).Object(t)["submissionToken"]
	submission := map[string]any{"submissionToken": token, "answers": map[string]any{"email": "ada@example.org"}}
	invalid := map[string]any{"submissionToken": token, "answers": map[string]any{}}
	page.JSON(t, http.MethodPost, form+"/submissions", invalid).
		WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	accepted := page.JSON(t, http.MethodPost, form+"/submissions", submission).Wants(t, http.StatusAccepted).Object(t)
	page.JSON(t, http.MethodPost, form+"/submissions", submission).WantsNested(t, http.StatusConflict, "CONFLICT")
	page.Get(t, accepted["statusUrl"].(string)[len(p.BaseURL):]).Wants(t, http.StatusOK)
	sent := ws.Get(t, forms+"/"+id+"/submissions").Wants(t, http.StatusOK).Object(t)
	if len(sent["data"].([]any)) != 1 {
		t.Errorf("%v", sent)
	}
}

// The page of a form works without script. It shares its rate limit with submissions by script.
func TestDescribed_FormPage(t *testing.T) {
	p := inParallel(t)
	_, form := madeForm(t, workspaceOf(p, p.NewWorkspace(t)))
	api := p.API()
	token, _ := api.Get(t, form).Wants(t, http.StatusOK).Object(t)["submissionToken"].(string)
	filled := url.Values{"submissionToken": {token}, "a.email": {"ada@example.org"}}
	api.Form(t, form+"/embed", url.Values{"submissionToken": {token}}).Wants(t, http.StatusBadRequest)
	time.Sleep(2200 * time.Millisecond) // faster submissions are rejected
	api.Get(t, form+"/embed").Wants(t, http.StatusOK)
	api.Get(t, "/v1/engage/public/embed.js").Wants(t, http.StatusOK)
	sent := api.Form(t, form+"/embed", filled).Wants(t, http.StatusSeeOther)
	api.Get(t, sent.Header.Get("Location")).Wants(t, http.StatusOK)
	api.Form(t, form+"/embed", filled).Wants(t, http.StatusConflict)
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

// The documentation page with its script, in a real browser.

// wantsQuiet checks that the page sent no request to other hosts and that the browser reported no errors.
func wantsQuiet(t *testing.T, p *harness.Product, browser Browser) {
	t.Helper()
	if hosts := browser.Hosts(); len(hosts) != 1 || !strings.HasSuffix(p.BaseURL, hosts[0]) {
		t.Errorf("requests to %v", hosts)
	}
	silent(t, browser)
}

// A developer finds an operation and sends it with a token, by keyboard alone.
func TestDescribed_FindsAndTriesOperationByKeyboard(t *testing.T) {
	p, ws := inWorkspace(t)
	browser := newBrowser(t, p, harness.Laptop)
	browser.Open(p.BaseURL + "/v1/docs")
	browser.See(".tabs button")
	const tab, enter = "\t", "\r"
	focus(t, browser, tab, "Filter operations")
	browser.Press("list programmes")
	wantsText(t, "the filtered page", browser, "1 operation")
	if strings.Contains(browser.Text(), "Create a form") {
		t.Error("the filtered page has another operation")
	}
	focus(t, browser, tab, "Token")
	browser.Press(ws.Token)
	focus(t, browser, tab, "Workspace ID")
	browser.Press(ws.Workspace.ID)
	focus(t, browser, tab, "Python")
	browser.Press(enter)
	if shown := harness.Evaluate[bool](browser, `[...document.querySelectorAll("figure.request details[open]")]
		.every(one => one.dataset.language === "Python")`); !shown {
		t.Error("another language is shown")
	}
	focus(t, browser, tab, "Try it")
	browser.Press(enter)
	if at := browser.Focused(); at != "GET" {
		t.Errorf("the focus is at %q", at)
	}
	focus(t, browser, tab, "Send")
	browser.Press(enter)
	wantsLine(t, browser, "Status 200")
	wantsText(t, "the page", browser, `"data": []`)
	wantsToken(t, browser, ws.Token)
	wantsQuiet(t, p, browser)
}

// focus presses a key until the element with the text has the focus.
func focus(t *testing.T, browser Browser, key, text string) {
	t.Helper()
	var seen []string
	for range 60 {
		browser.Press(key)
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
	browser.Open(p.BaseURL + "/v1/docs#listProgrammes")
	browser.Click(`#listProgrammes figcaption > button:last-of-type`)
	browser.See(`#listProgrammes .try`)
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
	browser.Open(p.BaseURL + "/v1/docs#listProgrammes")
	browser.See(".tabs button")
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

// The documentation page works without script: it loads nothing else, fits the narrowest screen, and its links lead to
// their targets.
func TestDescribed_DocumentationPageFits(t *testing.T) {
	p := inParallel(t)
	browser := newBrowser(t, p, harness.Narrowest)
	browser.WithoutScript()
	browser.Open(p.BaseURL + "/v1/docs#changeProgramme")
	browser.See("#changeProgramme h3")
	wantsQuiet(t, p, browser)
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
