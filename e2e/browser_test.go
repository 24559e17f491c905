package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// Contract, section 4, in a real browser.

const approveButton = `button[name=decision][value=approve]`

// A landing is the callback of an application. It stores the queries that browsers bring. That a browser follows it to
// another page, app.TestChromium_FollowsClientFromCallback shows.
type landing struct {
	uri     string
	brought chan url.Values
}

func newLanding(t *testing.T) *landing {
	t.Helper()
	l := &landing{brought: make(chan url.Values, 8)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/callback" {
			l.brought <- r.URL.Query()
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!doctype html><title>Back</title><link rel="icon" href="data:,">`+
			`<p id="landed">Back at the application</p>`)
	}))
	t.Cleanup(server.Close)
	l.uri = server.URL + "/callback"
	return l
}

func (l *landing) wait(t *testing.T) url.Values {
	t.Helper()
	select {
	case values := <-l.brought:
		return values
	case <-time.After(await.Long):
		t.Fatal("the browser was not sent back to the application")
		return nil
	}
}

// connectorAt registers a connector for a resource, by its path, whose callback is the landing.
func connectorAt(
	t *testing.T, p *harness.Product, o harness.TestWorkspace, l *landing, path string, permissions ...string,
) harness.Connector {
	t.Helper()
	body := harness.ConnectorBody(p.BaseURL+path, permissions...)
	body["redirectUris"] = []string{l.uri}
	id, _ := o.Register(t, body).Wants(t, http.StatusCreated).Object(t)["clientId"].(string)
	connector := p.DocumentClient(id, l.uri, p.BaseURL+path)
	connector.Scope = strings.Join(permissions, " ")
	return connector
}

func TestBrowser_ApprovesConnector(t *testing.T) {
	p, ws := inWorkspace(t)
	landing := newLanding(t)
	attempt := connectorAt(t, p, ws, landing, "/v1", harness.ReadProgrammes, harness.WriteProgrammes).Begin()
	browser := newBrowser(t, p, harness.Telephone)
	browser.OpenAndSee(p.AuthorizeURL(attempt.Query), "#email")
	wantsText(t, "the sign-in page", browser, "Assistant of the office")
	browser.SignIn(ws.Owner.Email, ws.Owner.Password)
	browser.See(approveButton)
	app, _ := url.Parse(p.AppURL)
	callback, _ := url.Parse(landing.uri)
	wantsText(t, "the consent page", browser, ws.Workspace.Name, "See programmes", "Add and change programmes",
		"30 days", callback.Host)
	browser.ClickAndSee(approveButton, "#landed")
	brought := landing.wait(t)
	if brought.Get("state") != attempt.Query.Get("state") || brought.Get("iss") != p.BaseURL {
		t.Error("wrong state or iss")
	}
	attempt.Post(t, attempt.CodeForm(brought.Get("code"))).Tokens(t)
	silent(t, browser)
	for _, host := range browser.Hosts() {
		if host != app.Host && host != callback.Host {
			t.Errorf("a request was sent to %s", host)
		}
	}
}

func TestBrowser_KeyboardOnly(t *testing.T) {
	p, ws := inWorkspace(t)
	landing := newLanding(t)
	attempt := connectorAt(t, p, ws, landing, "/v1", harness.ReadProgrammes).Begin()
	browser := newBrowser(t, p, harness.Laptop)
	browser.OpenAndSee(p.AuthorizeURL(attempt.Query), "#email")
	if at := browser.Focused(); at != "E-mail address" {
		t.Errorf("the focus starts at %q", at)
	}
	browser.Press(ws.Owner.Email)
	browser.Press(TabKey)
	if at := browser.Focused(); at != "Password" {
		t.Errorf("after the address the focus is at %q", at)
	}
	browser.Press(ws.Owner.Password)
	browser.Press(EnterKey)
	browser.See(approveButton)
	var order []string
	for len(order) < 12 && !slices.Contains(order, "Approve") {
		browser.Press(TabKey)
		order = append(order, browser.Focused())
		if !harness.Evaluate[bool](browser, `getComputedStyle(document.activeElement).outlineStyle !== "none"`) {
			t.Errorf("the focus is not visible at %q", order[len(order)-1])
		}
	}
	want := []string{"Skip to content", "Not you? Sign in with another account", "Connected apps", "Deny", "Approve"}
	if !slices.Equal(order, want) {
		t.Errorf("focus order %q, want %q", order, want)
	}
	browser.Press(EnterKey)
	if brought := landing.wait(t); !brought.Has("code") {
		t.Errorf("callback with %v", brought)
	}
}

// Browsers send the origin of a form in Sec-Fetch-Site, but not over plain HTTP to a host other than localhost. There
// only the Origin header is sent, and it must not be null.
func TestBrowser_SignsInOverPlainHTTP(t *testing.T) {
	p, ws := inWorkspace(t)
	const name = "almoner.test"
	browser := newBrowser(t, p, harness.Laptop, name)
	app, _ := url.Parse(p.AppURL)
	browser.OpenAs(ws.Owner, "http://"+name+":"+app.Port()+"/login?return=/oauth/authorize")
	browser.Leave("#email")
	wantsText(t, "the sign-in led to", browser, "This request is not valid")
}

// layoutFaults returns the layout faults of the page on the screen, and those of accessibility that axe-core, which
// inspects each template (TestBrowser_AxeFindsNoViolation), does not find.
const layoutFaults = `(() => {
	const faults = [];
	if (document.documentElement.scrollWidth > innerWidth) faults.push("it scrolls sideways");
	for (const e of document.querySelectorAll(".scroll"))
		if (e.scrollWidth > e.clientWidth) faults.push("a table scrolls sideways: " + e.scrollWidth);
	if ([...document.querySelectorAll("td time")].some(e => !(e.title + e.textContent).includes("UTC")))
		faults.push("no time zone for the times");
	for (const one of ["h1", "main"])
		if (document.querySelectorAll(one).length !== 1) faults.push("not exactly one " + one);
	if (!document.documentElement.lang) faults.push("no language");
	let level = 0;
	for (const h of document.querySelectorAll("h1,h2,h3,h4")) {
		if (+h.tagName[1] > level + 1) faults.push("a heading skips a level: " + h.textContent);
		level = +h.tagName[1];
	}
	for (const e of document.querySelectorAll("input:not([type=hidden]),select,textarea"))
		if (e.checkVisibility() && !e.labels.length && !e.getAttribute("aria-label"))
			faults.push("no label: " + e.name);
	for (const e of document.querySelectorAll("button,summary,a[href]")) {
		if (!e.checkVisibility()) continue;
		if (!(e.getAttribute("aria-label") || e.textContent).trim()) faults.push("no name: " + e.outerHTML);
		const box = e.getBoundingClientRect(), inline = getComputedStyle(e).display === "inline";
		if (!inline && !e.classList.contains("skip") && (box.height < 24 || box.width < 24))
			faults.push("target smaller than 24 pixels: " + e.textContent);
	}
	const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
	for (const id of ids) if (ids.filter(x => x === id).length > 1) faults.push("duplicate id " + id);
	const references = e => e.getAttribute("aria-describedby") || e.getAttribute("aria-labelledby") || e.htmlFor;
	for (const e of document.querySelectorAll("[aria-describedby],[aria-labelledby],label[for]"))
		for (const id of references(e).split(" "))
			if (!document.getElementById(id)) faults.push("reference to a missing id: " + id);
	return faults;
})()`

func TestBrowser_CreatesUsesAndRevokesToken(t *testing.T) {
	p, ws, browser := atDevelopers(t, harness.Laptop)
	browser.Click(`a[href^="/settings/developers/new"]`)
	browser.Fill("#token-name", "Quarterly figures")
	browser.Click(`input[name=permissions][value="` + harness.ReadProgrammes + `"]`)
	browser.ClickAndSee(`form[action="/settings/developers/tokens"] button`, "#shown-value")
	token := harness.Evaluate[string](browser, `document.getElementById("shown-value").value`)
	met.AddAll(token)
	p.In(ws.Workspace, token).Get(t, programmes).Wants(t, http.StatusOK)
	p.In(ws.Workspace, token).JSON(t, http.MethodPost, harness.ListPath, map[string]any{"name": "x"}).
		WantsNested(t, http.StatusForbidden, "FORBIDDEN")
	if !harness.Evaluate[bool](browser, `document.querySelector("[data-copy=shown-value]").checkVisibility()`) {
		t.Error("the copy button is not visible")
	}
	browser.Open(p.AppURL + "/settings/developers?tenant=" + ws.Workspace.ID)
	if strings.Contains(harness.Evaluate[string](browser, `document.documentElement.outerHTML`), token) {
		t.Error("the token is shown a second time")
	}
	harness.Evaluate[bool](browser,
		`[...document.querySelectorAll(".row")].filter(r => r.textContent.includes("Quarterly figures"))
		.forEach(r => { r.querySelector("summary").click(); r.querySelector(".button-bad").click() }) || true`)
	browser.ClickAndSee(`form[action="/settings/developers/tokens/revoke"] .confirm[open] button`, "[role=status]")
	wantsText(t, "after revoking", browser, "The token Quarterly figures was revoked")
	wantsBearerRejected(t, p, ws, token)
	p.In(ws.Workspace, ws.Token).Get(t, programmes).Wants(t, http.StatusOK) // the owner's other token
	silent(t, browser)
}

// The other forms of the settings (contract, section 7) in a real browser.

// atDevelopers opens the Developers page of a new workspace as its owner.
func atDevelopers(t *testing.T, screen harness.Screen) (*harness.Product, harness.TestWorkspace, Browser) {
	t.Helper()
	p, ws := inWorkspace(t)
	browser := newBrowser(t, p, screen)
	browser.OpenAs(ws.Owner, p.AppURL+"/settings/developers?tenant="+ws.Workspace.ID)
	return p, ws, browser
}

// fillApplication fills in the form of a new application except its redirect URI, and returns the form's selector.
func fillApplication(browser Browser) (form string) {
	form = `form[action="/settings/developers/apps"]`
	browser.Click(`.tabs a[href^="/settings/applications"]`)
	browser.Click(`a[href^="/settings/applications/new"]`)
	browser.Fill("#app-name", "Gift Aid export")
	browser.Click(form + ` input[name=permissions][value="` + harness.ReadProgrammes + `"]`)
	return form
}

func TestBrowser_RegistersAndDeletesApplication(t *testing.T) {
	p, ws, browser := atDevelopers(t, harness.Telephone)
	form := fillApplication(browser)
	browser.ClickAndSee(form+" button[type=submit]", "#problem a")
	typed := harness.Evaluate[string](browser, `document.getElementById("app-name").value`)
	if typed != "Gift Aid export" {
		t.Errorf("the name field now contains %q", typed)
	}
	browser.Click("#problem a")
	if at := browser.Focused(); at != "Redirect URIs" {
		t.Errorf("the error summary leads to %q", at)
	}
	browser.Fill("#app-redirects", harness.RedirectURI)
	browser.ClickAndSee(form+" button[type=submit]", "#shown-value")
	app := p.DemoConfidential()
	app.ClientID = harness.Evaluate[string](browser, `document.getElementById("shown-client").value`)
	app.ClientSecret = harness.Evaluate[string](browser, `document.getElementById("shown-value").value`)
	app.RedirectURI = harness.RedirectURI
	met.AddAll(app.ClientSecret)
	tokens := app.Connect(t, p.Person(t, ws.Owner))
	api := p.In(ws.Workspace, tokens.AccessToken)
	api.Get(t, programmes).Wants(t, http.StatusOK)
	browser.Open(p.AppURL + "/settings/applications?tenant=" + ws.Workspace.ID)
	harness.Evaluate[bool](browser,
		`[...document.querySelectorAll(".row")].filter(r => r.textContent.includes("Gift Aid export"))
		.forEach(r => { r.querySelector("summary").click(); r.querySelector(".button-bad").click() }) || true`)
	browser.ClickAndSee(`form[action="/settings/developers/apps/delete"] button`, "[role=status]")
	wantsText(t, "after deleting", browser, "Gift Aid export was deleted")
	api.Get(t, programmes).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	sound(t, "applications", browser, http.StatusBadRequest) // the form without a redirect URI
}

// The response to the second click would report that the application exists already and replace the page that shows
// the secret once.
func TestBrowser_DoubleClickKeepsSecretVisible(t *testing.T) {
	p, ws, browser := atDevelopers(t, harness.Laptop)
	form := fillApplication(browser)
	browser.Fill("#app-redirects", harness.RedirectURI)
	browser.DelayResponses(2 * time.Second)
	harness.Evaluate[bool](browser, `(button => { button.click(); setTimeout(() => button.click(), 1000); return true })
		(document.querySelector('`+form+` button[type=submit]'))`)
	browser.See("#shown-client")
	if !harness.Evaluate[bool](browser, `document.getElementById("shown-value") !== null`) {
		t.Fatalf("the secret is lost: %s", browser.Text())
	}
	met.AddAll(harness.Evaluate[string](browser, `document.getElementById("shown-value").value`))
	n := p.Database.Count(t, `select count(*) from account.oauth_clients where tenant_id = $1`, ws.Workspace.ID)
	if n != 1 {
		t.Errorf("%d applications", n)
	}
}

// The script that prevents a double submission releases the form when the user returns to the page.
func TestBrowser_FormIsReusableAfterReturn(t *testing.T) {
	_, _, browser := atDevelopers(t, harness.Laptop)
	browser.Click(`.tabs a[href^="/settings/webhooks"]`)
	browser.ClickAndSee(`a[href^="/settings/webhooks/new"]`, "#webhook-url")
	sent := harness.Evaluate[[]bool](browser, `(() => {
		const one = document.querySelector('form[action="/settings/developers/webhooks"]');
		const other = document.querySelector('form[action="/logout"]');
		const sends = form => form.dispatchEvent(new Event("submit", {bubbles: true, cancelable: true}));
		const before = [sends(one), sends(one), sends(other)];
		dispatchEvent(new PageTransitionEvent("pageshow", {persisted: true}));
		return [...before, sends(one)];
	})()`)
	if want := []bool{true, false, true, true}; !slices.Equal(sent, want) {
		t.Errorf("submissions %v, want %v", sent, want)
	}
}

func TestBrowser_UserRevokesOwnAccess(t *testing.T) {
	p, ws := inWorkspace(t)
	ada := ws.Member(t, harness.ReadProgrammes) // without API access: no Developers tab
	token := p.Database.Token(t, ws.Workspace, ada, harness.ReadProgrammes)
	elsewhere := p.Person(t, ada)
	tokens := ws.Connector(t, harness.ReadProgrammes).Connect(t, elsewhere)
	byToken, byApplication := p.In(ws.Workspace, token), p.In(ws.Workspace, tokens.AccessToken)
	byToken.Get(t, programmes).Wants(t, http.StatusOK)
	byApplication.Get(t, programmes).Wants(t, http.StatusOK)
	browser := newBrowser(t, p, harness.Laptop)
	browser.OpenAs(ada, p.AppURL+"/settings/apps")
	browser.See("#live")
	browser.Click(".rows summary.button-bad")
	browser.ClickAndSee(`details[open] form[action="/settings/apps/disconnect"] button`, "[role=status]")
	wantsText(t, "after disconnecting", browser, "You disconnected ")
	byApplication.Get(t, programmes).Wants(t, http.StatusUnauthorized)
	browser.Open(p.AppURL + "/settings/security/tokens")
	browser.Click("summary.columns")
	browser.Click(".rows summary.button-bad")
	browser.ClickAndSee(`form[action="/settings/security/tokens/revoke"] details[open] button`, "[role=status]")
	wantsText(t, "after revoking", browser, "was revoked")
	byToken.Get(t, programmes).Wants(t, http.StatusUnauthorized)
	browser.Open(p.AppURL + "/settings/security") // without the notice, because the next one is awaited
	browser.ClickAndSee(`form[action="/settings/security/sign-out-others"] button`, "[role=status]")
	wantsText(t, "after signing out elsewhere", browser, "1 other browser was signed out")
	elsewhere.Open(t, p.AppURL+"/settings/user").Wants(t, http.StatusSeeOther)
	silent(t, browser)
}
