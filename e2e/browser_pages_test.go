package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// The page on which a user chooses the workspace for a client that belongs to no workspace.

// warningInView reports whether the warning is completely in the window and nothing covers it.
const warningInView = `(() => {
	scrollTo(0, 0);
	const e = document.querySelector(".alert-warn"), box = e.getBoundingClientRect();
	const shown = y => e.contains(document.elementFromPoint(box.x + 20, y));
	return e.textContent.includes("an app on this computer") && shown(box.top + 3) && shown(box.bottom - 3);
})()`

func TestBrowser_ChoosesWorkspace(t *testing.T) {
	p, site := enterWithDocuments(t)
	owner, landing := p.Demo.Users.Owner, newLanding(t)
	client := p.DocumentClient(site.Client("/oauth/browser", []string{"http://127.0.0.1/callback"}, nil), landing.uri,
		p.BaseURL+"/mcp")
	attempt := client.Begin()
	browser := newBrowser(t, p, harness.Narrowest)
	browser.OpenAs(owner, p.AuthorizeURL(attempt.Query))
	browser.See("input[name=workspace]")
	if harness.Evaluate[bool](browser, `document.querySelector("input[name=workspace]:checked") !== null`) {
		t.Error("a workspace is preselected")
	}
	choice := `input[name=workspace][value="` + p.Demo.Workspaces.Empty.ID + `"]`
	// On the narrowest screen, the bar with the buttons may cover it.
	harness.Evaluate[bool](browser, `document.querySelector('`+choice+`').scrollIntoView({block: "center"}), true`)
	browser.Click(choice)
	browser.Press(EnterKey)
	browser.See(approveButton)
	for _, screen := range []harness.Screen{harness.Laptop, harness.Telephone} {
		browser.Show(screen, "light")
		if !harness.Evaluate[bool](browser, warningInView) {
			t.Errorf("%d pixels: the warning about the user's own computer is out of view", screen.Width)
		}
	}
	wantsText(t, "the consent page", browser, p.Demo.Workspaces.Empty.Name)
	browser.Click(approveButton)
	tokens := attempt.Post(t, attempt.CodeForm(landing.wait(t).Get("code"))).Tokens(t)
	if tokens.WorkspaceID != p.Demo.Workspaces.Empty.ID {
		t.Errorf("the token is for %s", tokens.WorkspaceID)
	}
	silent(t, browser)
}

// The consent page in a real browser.

// struckOut returns the titles of the struck-out permissions.
const struckOut = `[...document.querySelectorAll(".permission-title")]
	.filter(e => getComputedStyle(e).textDecorationLine === "line-through").map(e => e.textContent)`

// hiddenButtons returns the buttons of the decision that are not completely in the window.
const hiddenButtons = `[...document.querySelectorAll(".decision button")].filter(e => {
	const box = e.getBoundingClientRect();
	return box.top < 0 || box.bottom > innerHeight || document.elementFromPoint(box.x + 5, box.y + 5) !== e;
}).map(e => e.textContent)`

func TestBrowser_ConsentShowsDecisionAndWhatReadOnlyLeavesOut(t *testing.T) {
	p, ws := inWorkspace(t)
	user := ws.Member(t, harness.ReadProgrammes, harness.WriteProgrammes, harness.APIAccess)
	landing := newLanding(t)
	attempt := connectorAt(t, p, ws, landing, "/v1", harness.ReadProgrammes, harness.WriteProgrammes).Begin()
	browser := newBrowser(t, p, harness.Laptop)
	browser.WithoutScript()
	browser.OpenAs(user, p.AuthorizeURL(attempt.Query))
	browser.See(approveButton)
	for _, screen := range []harness.Screen{harness.Laptop, harness.Telephone} {
		browser.Show(screen, "light")
		browser.Click(`input[name=access][value=all]`)
		for _, at := range []string{"0", "document.documentElement.scrollHeight"} {
			harness.Evaluate[bool](browser, `(scrollTo(0, `+at+`), true)`)
			if hidden := harness.Evaluate[[]string](browser, hiddenButtons); len(hidden) > 0 {
				t.Errorf("%d pixels, at %s: out of view: %v", screen.Width, at, hidden)
			}
		}
		if struck := harness.Evaluate[[]string](browser, struckOut); len(struck) > 0 {
			t.Errorf("with all permissions, struck out: %v", struck)
		}
		browser.Click(`input[name=access][value=read]`)
		want := []string{"Add and change programmes"}
		if struck := harness.Evaluate[[]string](browser, struckOut); !slices.Equal(struck, want) {
			t.Errorf("with read only, struck out: %v, want %v", struck, want)
		}
		// Tab leads through the page: the bar does not cover what has the focus.
		harness.Evaluate[bool](browser, `(scrollTo(0, 0), document.activeElement.blur(), true)`)
		for range 8 {
			browser.Press(TabKey)
			if covered := harness.Evaluate[bool](browser, `(() => {
				const e = document.activeElement, bar = document.querySelector(".decision-bar");
				return !bar.contains(e) && e !== document.body &&
					e.getBoundingClientRect().bottom > bar.getBoundingClientRect().top;
			})()`); covered {
				t.Errorf("%d pixels: the bar covers %q", screen.Width, browser.Focused())
			}
		}
	}
	// A low window, such as an enlarged one, has no room for a bar.
	browser.Show(harness.Screen{Width: 640, Height: 400}, "light")
	if top := harness.Evaluate[float64](browser,
		`(scrollTo(0, 0), document.querySelector(".decision-bar").getBoundingClientRect().top)`); top < 400 {
		t.Errorf("in a low window the bar is at %g pixels", top)
	}
	browser.Click(`button[name=decision][value=deny]`)
	if brought := landing.wait(t); brought.Get("error") != "access_denied" || brought.Has("code") ||
		brought.Get("state") != attempt.Query.Get("state") {
		t.Errorf("callback with %v", brought)
	}
}

// coveredByBar returns what a careful person reads before the decision and the bar with the buttons covers.
const coveredByBar = `[...document.querySelectorAll("h1, .alert, .facts > div, .preset, .permission")].filter(e =>
	e.getBoundingClientRect().bottom > document.querySelector(".decision-bar").getBoundingClientRect().top)
	.map(e => e.textContent)`

// However many permissions there are, the bar begins below the last one, and sticks only from there. The choice of read
// only comes before the list.
func TestBrowser_ConsentBarCoversNothingThatMatters(t *testing.T) {
	p, ws := inWorkspace(t)
	asked := []string{harness.ReadProgrammes, harness.WriteProgrammes, harness.ReadForms, harness.WriteForms}
	browser := newBrowser(t, p, harness.Laptop)
	browser.OpenAs(ws.Owner, p.AuthorizeURL(ws.Connector(t, asked...).Begin().Query))
	for _, screen := range []harness.Screen{harness.Laptop, harness.Telephone, harness.Narrowest} {
		browser.Show(screen, "light")
		harness.Evaluate[bool](browser, `(scrollTo(0, 0), true)`)
		if covered := harness.Evaluate[[]string](browser, coveredByBar); len(covered) > 0 {
			t.Errorf("%d pixels: the bar covers %q", screen.Width, covered)
		}
	}
	if !harness.Evaluate[bool](browser, `!!(document.querySelector(".presets").compareDocumentPosition(
		document.querySelector(".permissions")) & Node.DOCUMENT_POSITION_FOLLOWING)`) {
		t.Error("the choice of read only comes after the permissions")
	}
}

// Pages on paper.

// onlyOnScreen returns what is printed although only a screen can use it, relativeOnPaper the times without a date, and
// foldedOnPaper the text that is not printed, because it is folded.
const (
	onlyOnScreen = `[...document.querySelectorAll("button, .button, nav, input[type=search]")]
		.filter(e => e.checkVisibility()).map(e => e.outerHTML)`
	relativeOnPaper = `[...document.querySelectorAll("time[data-local=ago]")]
		.filter(e => !/20\d\d/.test(e.textContent)).map(e => e.outerHTML)`
	foldedOnPaper = `[...document.querySelectorAll("main details:not(.confirm, .filters) :is(p, li, dd, label)")]
		.filter(e => !e.closest("nav, .row-actions, .find, .confirm") && !e.checkVisibility()).map(e => e.textContent)`
)

func TestBrowser_PrintsTextWithoutControls(t *testing.T) {
	p, ws := inWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
	connector.Connect(t, p.Person(t, ws.Owner))
	tenant := "?tenant=" + ws.Workspace.ID
	browser := newBrowser(t, p, harness.Laptop)
	browser.OpenAs(ws.Owner, p.AppURL+"/login")
	browser.See("#workspaces")
	for address, shown := range map[string]string{
		p.AuthorizeURL(connector.Begin().Query):                               "Add and change programmes",
		p.AppURL + "/settings/apps":                                           "Assistant of the office",
		p.AppURL + "/settings/connectors" + tenant:                            "Assistant of the office",
		p.AppURL + "/settings/connectors/log" + tenant:                        "Assistant of the office",
		p.AppURL + "/settings/members/member" + tenant + "&id=" + ws.Owner.ID: "Manage members",
		p.AppURL + "/settings/audit" + tenant:                                 ws.Workspace.Name,
	} {
		browser.OpenAndSee(address, "h1")
		page, _, _ := strings.Cut(strings.TrimPrefix(address, p.AppURL), "?")
		browser.Paper()
		wantsText(t, page, browser, shown)
		for what, script := range map[string]string{
			"controls": onlyOnScreen, "folded": foldedOnPaper, "relative times": relativeOnPaper,
		} {
			await.NoError(t, func() error { // the page's script learns of the paper with the next frame
				if found := harness.Evaluate[[]string](browser, script); len(found) > 0 {
					return fmt.Errorf("%s: %s on paper: %q", page, what, found)
				}
				return nil
			})
		}
		if over := browser.Overflow(); over > 0 {
			t.Errorf("%s is %d pixels wider than the paper", page, over)
		}
		browser.Scheme("light")
	}
}

// countOfPages is in the root of the tree of pages of a PDF (ISO 32000-1, 7.7.3.2).
var countOfPages = regexp.MustCompile(`/Type /Pages\s[^>]*/Count (\d+)|/Count (\d+)[^>]*/Type /Pages\s`)

// The sheet of a former member is one page of A4, also if long lists ended with the membership.
func TestBrowser_PrintsFormerMemberOnOnePage(t *testing.T) {
	p, ws := inWorkspace(t)
	sam := ws.Member(t, harness.Everything()...)
	connectors := []harness.Connector{ws.Connector(t, harness.ReadProgrammes), ws.Connector(t, harness.ReadProgrammes)}
	for n := range 30 {
		p.Database.Token(t, ws.Workspace, sam, harness.ReadProgrammes)
		if n < 12 {
			connectors[n%2].Connect(t, p.Person(t, sam))
		}
	}
	browser := newBrowser(t, p, harness.Laptop)
	browser.OpenAs(ws.Owner, p.AppURL+"/login")
	browser.See("#workspaces")
	browser.Open(p.AppURL + "/settings/members/member?tenant=" + ws.Workspace.ID + "&id=" + sam.ID)
	browser.Click(`form[action="/settings/members/remove"] button`)
	browser.ClickAndSee(`input[name=confirm] ~ button`, ".tasks")
	byStyleSheet := true
	a4 := page.PrintToPDFParams{PaperWidth: 8.27, PaperHeight: 11.69, PreferCSSPageSize: &byStyleSheet} // inches
	paper, err := chromedp.Call(browser.Window(), page.PrintToPDF, a4)
	if err != nil {
		t.Fatal(err)
	}
	found := countOfPages.FindSubmatch(paper.Data)
	if len(found) == 0 || string(found[1])+string(found[2]) != "1" {
		t.Errorf("the sheet has these pages, want 1: %q", found)
	}
	browser.Paper()
	wantsText(t, "on paper", browser, "And 24 more")
}

// Times in a real browser.

// timesOf returns the text and the title of each time on the page.
const timesOf = `[...document.querySelectorAll("time[data-local]")].map(e => e.textContent + "|" + e.title)`

func TestBrowser_TimesAreLocalAndRelative(t *testing.T) {
	p, ws := inWorkspace(t)
	user := ws.Member(t, harness.Everything()...)
	p.As(ws.Token).JSON(t, http.MethodPost, "/v1/account/tenants/"+ws.Workspace.ID+"/invitations",
		map[string]any{"email": "sam@example.org", "permissions": []string{harness.ReadProgrammes}}).
		Wants(t, http.StatusCreated)
	inUTC := regexp.MustCompile(`^\d+ \w+ \d{4}, \d\d:\d\d UTC$`)
	for _, scripts := range []bool{true, false} {
		browser := newBrowser(t, p, harness.Telephone)
		browser.TimeZone("Asia/Kolkata")
		if !scripts {
			browser.WithoutScript()
		}
		browser.OpenAs(user, p.AppURL+"/login?return=/settings/security")
		browser.See("#sessions")
		times := harness.Evaluate[[]string](browser, timesOf)
		if len(times) == 0 {
			t.Fatal("there are no times on the page")
		}
		for _, shown := range times {
			text, title, _ := strings.Cut(shown, "|")
			if scripts && (!inUTC.MatchString(title) || text == title) || !scripts && !inUTC.MatchString(text) {
				t.Errorf("scripts %t: %q with the title %q", scripts, text, title)
			}
		}
		relative := func(shown string) bool {
			return strings.Contains(shown, " ago|") || strings.HasPrefix(shown, "just now|")
		}
		if scripts && !slices.ContainsFunc(times, relative) {
			t.Errorf("no time is relative: %v", times)
		}
		silent(t, browser)
		browser.OpenAndSee(p.AppURL+"/settings/members/member?tenant="+ws.Workspace.ID+"&id="+user.ID, "#may")
		if local := harness.Evaluate[bool](
			browser,
			`[...document.querySelectorAll("time[data-local=day]")].every(e => e.textContent ===
				new Intl.DateTimeFormat("en-GB", { dateStyle: "long" }).format(new Date(e.dateTime)))`,
		); scripts && !local {
			t.Error("a day is not in the reader's time zone")
		}
		browser.OpenAndSee(p.AppURL+"/settings/members?tenant="+ws.Workspace.ID, "#invitations")
		if text := browser.Text(); scripts && !strings.Contains(text, "Expires in 7 days") {
			t.Errorf("the invitation of this minute does not expire in 7 days: %s", text)
		}
	}
}

// An endpoint is added and tested in a real browser. Its pages fit a phone, however long the URL is.
func TestBrowser_AddsWebhook(t *testing.T) {
	_, _, browser := atDevelopers(t, harness.Telephone)
	const form = `form[action="/settings/developers/webhooks"]`
	address := "https://hooks.example.invalid/" + strings.Repeat("almoner", 20)
	browser.Click(`.tabs a[href^="/settings/webhooks"]`)
	browser.ClickAndSee(`a[href^="/settings/webhooks/new"]`, "#webhook-url")
	browser.Fill("#webhook-url", address)
	browser.ClickAndSee(form+" .button-main", "#problem a")
	browser.Click("#problem a")
	if typed := harness.Evaluate[string](browser, `document.getElementById("webhook-url").value`); typed != address {
		t.Errorf("the URL is now %q", typed)
	}
	browser.Click(form + ` input[value="programme.created"]`)
	looks(t, "the form", browser)
	browser.ClickAndSee(form+" .button-main", "#shown-value")
	met.AddAll(harness.Evaluate[string](browser, `document.getElementById("shown-value").value`))
	looks(t, "the page with the secret", browser)
	browser.ClickAndSee(`h3 a[href*="/settings/developers/webhook?"]`, "#deliveries")
	looks(t, "the page of the endpoint", browser)
	browser.ClickAndSee(`form[action="/settings/developers/webhooks/test"] button`, "ol.rows li")
	looks(t, "the log", browser)
	wantsText(t, "the log", browser, "A test event is on its way")
	sound(t, "webhooks", browser, http.StatusBadRequest) // the form without a kind
}

// brandSettings returns the settings of a name, a colour and a logo.
func brandSettings(t testing.TB) map[string]string {
	t.Helper()
	dir, err := localstore.ProcessDir("almoner-brand-")
	must(t, err)
	logo := filepath.Join(dir, "logo.svg")
	must(t, os.WriteFile(logo, []byte(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9" width="99" height="99">
		<circle cx="4" cy="4" r="4" fill="#7a1fa2"/></svg>`), 0o644))
	return map[string]string{
		"ALMONER_BRAND_NAME":   "Harbour Trust",
		"ALMONER_BRAND_COLOUR": "#7a1fa2",
		"ALMONER_BRAND_LOGO":   logo,
	}
}

// The name, colour and logo of a deployment are on its pages and in its mails. That each colour gets contrast,
// TestAccent_EveryColourGetsContrast of brand and TestBrand_ColourHasContrastInBothSchemes of ui show.
func TestBrowser_ShowsBrandOfDeployment(t *testing.T) {
	p, ws, box := withMail(t)
	browser := newBrowser(t, p, harness.Laptop)
	browser.Scheme("light")
	look := func(page, button string) {
		t.Helper()
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
	browser.OpenAndSee(p.AuthorizeURL(connector.Begin().Query), "#password")
	look("sign-in", "button.button-main")
	browser.SignIn(ws.Owner.Email, ws.Owner.Password)
	browser.See(approveButton)
	look("consent", approveButton)
	browser.OpenAndSee(p.AppURL+"/settings/members/invite", "#invite-email")
	look("settings", "button.button-main")
	current := `getComputedStyle(document.querySelector("[aria-current]")).color`
	if got := harness.Evaluate[string](browser, current); got != "rgb(122, 31, 162)" {
		t.Errorf("the current section is %s", got)
	}
	key, _ := formWithTexts(t, p, ws, "en")
	browser.OpenAndSee(p.BaseURL+"/v1/engage/public/forms/"+key+"/embed", "button")
	look("form", "button")
	connector.Connect(t, p.Person(t, ws.Owner))
	letter := mailTo(t, box, ws.Owner.Email, "New connected app")
	for _, text := range []string{letter.HTML, letter.Text} {
		if !strings.Contains(text, "Harbour Trust") || strings.Contains(text, "Almoner") {
			t.Errorf("the mail is %s", text)
		}
	}
	if !strings.Contains(letter.HTML, "background:#7a1fa2") {
		t.Errorf("the mail is %s", letter.HTML)
	}
}
