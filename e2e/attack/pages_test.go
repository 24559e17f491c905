package attack

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/PuerkitoBio/goquery"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// Clickjacking and cross-site reading: no other site may frame or read a page.

// wantsNoFrame checks the headers that forbid framing and cross-site reading, and sending forms to other sites. Only a
// page of an authorization request, which ends at the client, may send them (contract, section 4).
func wantsNoFrame(t *testing.T, page harness.Page) {
	t.Helper()
	policy := page.Header.Get("Content-Security-Policy")
	for _, directive := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"} {
		if !strings.Contains(policy, directive) {
			t.Errorf("the policy lacks %s: %q\n%s", directive, policy, page)
		}
	}
	const outside = `form[action="/oauth/authorize"], input[name=return][value*="/oauth/authorize"]`
	leadsOutside := page.Find(outside).Length() > 0
	if leadsOutside == strings.Contains(policy, "form-action 'self'") {
		t.Errorf("a form leads outside: %v, the policy is %q\n%s", leadsOutside, policy, page)
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
		t.Errorf("the policy is lax: %q", policy)
	}
	for name, want := range map[string]string{
		"X-Frame-Options":                  "DENY",
		"X-Content-Type-Options":           "nosniff",
		"Cache-Control":                    "no-store",
		"Access-Control-Allow-Origin":      "",
		"Access-Control-Allow-Credentials": "",
	} {
		page.WantsHeader(t, name, want)
	}
}

func TestPages_ForbidFraming(t *testing.T) {
	p, e := newAttack(t)
	opened, sendable := pagesAndForms(t)
	stranger := p.Person(t, e.Owner)
	for _, who := range []*harness.Person{stranger, e.person} {
		who.Header = http.Header{"Origin": {"https://evil.example"}}
		pages := []harness.Page{
			who.Open(t, p.AuthorizeURL(e.connector.Begin().Query)),
			who.Open(t, p.AuthorizeURL(p.DemoConnector().Begin().Query)), who.Open(t, p.AppURL+"/nothing"),
			who.Open(t, p.AppURL+"/oauth/authorize?client_id=x"),
			who.Request(t, http.MethodDelete, p.AppURL+"/login", "", ""),
			who.Submit(t, formAt(p, "/login", url.Values{"email": {"x@example.org"}, "password": {"x"}})),
		}
		for _, path := range append(opened, sendable...) {
			pages = append(pages, who.Open(t, p.AppURL+path))
		}
		seen := 0
		for _, page := range pages {
			if strings.HasPrefix(page.Header.Get("Content-Type"), "text/html") {
				seen++
				wantsNoFrame(t, page)
			} else if page.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("a page of another site may read this:\n%s", page)
			}
		}
		if seen < 12 {
			t.Errorf("only %d pages were checked", seen)
		}
	}
}

// TestBrowser_CrossSitePageChangesNothing repeats this in a real browser: the victim is signed in, and the attacker's
// page is on the same site, at another port of the host.
func TestBrowser_CrossSitePageChangesNothing(t *testing.T) {
	p, e := newAttack(t)
	var page string
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(`<!doctype html><title>Prizes</title><link rel="icon" href="data:,">` +
			`<p id="evil">You have won</p>` + page))
	}))
	t.Cleanup(evil.Close)
	address := strings.Replace(evil.URL, "127.0.0.1", "localhost", 1)
	browser := p.Browser(t, harness.Laptop)
	browser.Open(p.AppURL + "/login")
	browser.SignIn(e.Owner.Email, e.Owner.Password)
	browser.See(".bar-who")
	was := e.inventory(t)
	for _, form := range []struct{ action, fields string }{
		{"/logout", ""},
		{"/settings/apps/disconnect", `<input name="id" value="` + e.grant + `">`},
		{"/settings/connectors/disconnect", `<input name="id" value="` + e.grant + `">`},
		{"/settings/security/sign-out-others", ""},
		{"/login", `<input name="email" value="eve@example.org"><input name="password" value="x">`},
		{"/oauth/authorize", `<input name="decision" value="approve">`},
	} {
		page = `<form method="post" action="` + p.AppURL + form.action + `">` + form.fields +
			`</form><script>document.forms[0].submit()</script>`
		browser.Open(address)
		browser.Leave("#evil")
	}
	browser.Open(p.AppURL + "/settings/user")
	browser.See(".bar-who")

	page = `<iframe id="f" width="600" height="600" src="` + p.AuthorizeURL(e.connector.Begin().Query) + `"></iframe>`
	browser.Open(address)
	await.True(t, "the browser refuses to show the consent page in a frame of another site", func() bool {
		return strings.Contains(strings.Join(browser.Complaints(), "\n"), "frame-ancestors")
	})
	page = `<p id="read"></p><script>
			const show = text => { document.getElementById("read").textContent = text }
			fetch("` + p.AppURL + `/settings/user", {credentials: "include"}).
				then(r => r.text()).
				then(x => show("read " + x.length), () => show("refused"))
		</script>`
	browser.Open(address)
	await.True(t, "the page has an answer", func() bool {
		text := harness.Evaluate[string](browser,
			`document.getElementById("read") ? document.getElementById("read").textContent : ""`)
		if text != "" && text != "refused" {
			t.Fatalf("a page of another site reads ours: %s", text)
		}
		return text == "refused"
	})
	e.untouched(t, was, "an evil page")
}

// Stored and reflected markup: every name that a user can choose, on every page that shows it.

// markup runs a script if it is parsed as HTML, as text or in an attribute. Evaluated as a template, it renders 49.
const markup = `"'><img src=x onerror=pwned=1><script>pwned=1</script>{{7*7}}`

// markedName returns a name with markup, which starts with the place where it is stored.
func markedName(where string) string { return where + " " + markup }

// newMarkedTarget stores markup in every name. Names that the product refuses are written to the database directly.
func newMarkedTarget(t *testing.T, p *harness.Product) *target {
	t.Helper()
	e := newTarget(t, p)
	e.Owner.Email = `"<img/src=x/onerror=pwned=1>".` + strings.ToLower(e.Owner.ID[:8]) + `@example.org`
	const ofMembers = ` in (select user_id from account.memberships where tenant_id = $1)`
	const event = `insert into account.audit_events
		(id, tenant_id, user_id, actor, action, subject, detail, request_id) `
	for _, change := range []struct{ sql, name string }{
		{`update account.tenants set name = $2 where id = $1`, markedName("workspace")},
		{`update account.organisations set name = $2
			where id = (select organisation_id from account.tenants where id = $1)`, markedName("organisation")},
		{`update account.oauth_clients set name = $2 where tenant_id = $1`, markedName("application")},
		{`update account.personal_access_tokens set name = $2 where tenant_id = $1`, markedName("token")},
		{`update resource.programmes set name = $2, summary = $2 where tenant_id = $1`, markedName("programme")},
		{`update resource.forms set title = $2 where tenant_id = $1`, markedName("form")},
		{`update account.users set name = $2 where id` + ofMembers, markedName("person")},
		{`update account.users set email = $2 where id in (select user_id from account.memberships
			where tenant_id = $1 and 'account:api:access' = any(permissions))`, e.Owner.Email},
		{`update account.passkeys set name = $2 where user_id` + ofMembers, markedName("passkey")},
		{`update account.oauth_clients
			set redirect_uris = redirect_uris || ('https://app.canal-lane.example/cb?x=' || $2)
			where tenant_id = $1`, `"'><script>pwned=1</script>`},
		{`update account.sign_ins set user_agent = $2 where user_id` + ofMembers, markedName("browser")},
		{event + `select gen_random_uuid(), $1, user_id, $2, $2, $2,
				jsonb_build_object('name', $2::text, 'address', $2::text, 'reason', $2::text), $2
			from account.memberships where tenant_id = $1`, markedName("event")},
		{event + `select gen_random_uuid(), $1, user_id, 'user:' || user_id, 'token.created', 'token:x',
				jsonb_build_object('name', $2::text, 'address', $2::text), ''
			from account.memberships where tenant_id = $1`, markedName("event of a token")},
	} {
		p.Database.Exec(t, change.sql, e.Workspace.ID, change.name)
	}
	e.person.Email = e.Owner.Email
	return e
}

// pagesOf returns the addresses that show the stored names, with the names that must be readable there.
func pagesOf(p *harness.Product, e *target) map[string][]string {
	in := "?tenant=" + e.Workspace.ID
	return map[string][]string{
		p.AppURL + "/settings/user":                {"person", "workspace", "organisation"},
		p.AppURL + "/settings/developers" + in:     {"token", "workspace"},
		p.AppURL + "/settings/applications" + in:   {"application", "workspace"},
		p.AppURL + "/settings/webhooks" + in:       {"workspace"},
		p.AppURL + "/settings/webhooks/new" + in:   {"workspace"},
		p.AppURL + "/settings/apps":                {"application", "workspace"},
		p.AppURL + "/settings/security":            {"token", "event of a token"},
		p.AppURL + "/settings/audit" + in:          {"event", "workspace"},
		p.AppURL + "/settings/connectors" + in:     {"workspace"},
		p.AppURL + "/settings/connectors/log" + in: {"workspace"},
		p.AppURL + "/settings/members" + in:        {"person", "workspace"},
		p.AppURL + "/settings/members/invite" + in: {"workspace"},
		p.AppURL + "/settings/passkeys":            {"passkey"},
		p.AppURL + "/login/again":                  nil,
		p.AuthorizeURL(e.connector.Begin().Query):  {"application", "workspace"},
		p.AuthorizeURL(e.app.Request()):            {"application", "workspace"},
		p.BaseURL + e.publicForm() + "/embed":      {"form"},
	}
}

// qrCode reports whether an element is the QR code of an authenticator app: an image without anything to run.
func qrCode(element *goquery.Selection) bool {
	return element.Is("img.qr") && strings.HasPrefix(element.AttrOr("src", ""), "data:image/png;base64,")
}

// wantsInert checks that a page holds no script, frame or event handler besides our own.
func wantsInert(t *testing.T, page harness.Page, where string) {
	t.Helper()
	for _, element := range page.Find("*").EachIter() {
		name := goquery.NodeName(element)
		for _, attribute := range element.Get(0).Attr {
			value := strings.ToLower(strings.TrimSpace(attribute.Val))
			if strings.HasPrefix(strings.ToLower(attribute.Key), "on") || strings.HasPrefix(value, "javascript:") ||
				(strings.HasPrefix(value, "data:") && attribute.Val != "data:," && !qrCode(element)) ||
				attribute.Key == "srcdoc" || attribute.Key == "style" {
				t.Errorf("%s: <%s %s=%q>", where, name, attribute.Key, attribute.Val)
			}
		}
		switch source := element.AttrOr("src", ""); {
		case name == "script" && !strings.HasPrefix(source, "/static/") && !ofForm(source),
			name == "img" && source == "x",
			name == "iframe",
			name == "object",
			name == "embed",
			name == "base":
			t.Errorf("%s: <%s src=%q> %s", where, name, source, element.Text())
		}
	}
}

func TestMarkup_StoredNamesAreEscaped(t *testing.T) {
	p := newProduct(t)
	e := newMarkedTarget(t, p)
	for address, words := range pagesOf(p, e) {
		page := e.person.Open(t, address)
		_, path, _ := strings.Cut(address, "//")
		wantsInert(t, page.WantsPage(t, http.StatusOK), path)
		for _, word := range words {
			if !strings.Contains(page.Text(), markedName(word)) &&
				!strings.Contains(allValues(page), markedName(word)) {
				t.Errorf("%s does not show the %s: the test proves nothing", path, word)
			}
		}
	}
	stranger := p.Person(t, p.Database.User(t))
	login := stranger.Open(t, p.AuthorizeURL(e.connector.Begin().Query))
	wantsInert(t, login, "sign-in for an application")
	login.WantsText(t, markedName("application"))
	stranger.SignedIn(t)
	refusal := stranger.Open(t, p.AuthorizeURL(e.connector.Begin().Query)).WantsPage(t, http.StatusForbidden)
	wantsInert(t, refusal, "refusal")
	refusal.WantsText(t, markedName("application"))
	// The notice after a form names the application.
	done := e.person.Submit(t,
		sent(t, p, "/settings/apps/disconnect", e.Workspace.ID, keyOf(t, p, e.person), url.Values{"id": {e.grant}}))
	after := e.person.Follow(t, done)
	wantsInert(t, after, "notice")
	after.WantsText(t, markedName("application")+" was disconnected")
}

func allValues(page harness.Page) string {
	var out strings.Builder
	for _, element := range page.Find("[value]").EachIter() {
		out.WriteString(element.AttrOr("value", "") + "\n")
	}
	return out.String()
}

func TestMarkup_RequestValuesAreEscaped(t *testing.T) {
	p, e := newAttack(t)
	opened, _ := pagesAndForms(t)
	stranger := p.Person(t, e.Owner)
	names := []string{
		"return", "tenant", "before", "client_id", "redirect_uri", "state", "scope", "error", "error_description",
		"email", "id", "q", markup,
	}
	for place, path := range append(opened, "/nothing", "/"+url.PathEscape(markup)) {
		all := url.Values{}
		for _, name := range names {
			all.Set(name, markup)
		}
		all.Del("tenant") // no other is read if the workspace is not found
		queries := []url.Values{all}
		for _, name := range choice(names, 2, place) {
			queries = append(queries, url.Values{name: {markup}})
		}
		for _, query := range queries {
			for _, who := range []*harness.Person{stranger, e.person} {
				address := path + "?" + query.Encode()
				page := who.Open(t, p.AppURL+address)
				if strings.HasPrefix(page.Header.Get("Content-Type"), "text/html") {
					wantsInert(t, page, address)
				}
				if strings.Contains(string(page.Body), "<script>pwned") {
					t.Errorf("%s: markup comes back:\n%s", address, page)
				}
			}
		}
	}
	for path, values := range map[string]url.Values{
		"/login": {
			"email": {markup + "@example.org"}, "password": {"x"}, "return": {"/settings/" + markup},
		},
		"/settings/developers/tokens": {"name": {strings.Repeat(markup, 4)}, "days": {markup}, "permissions": {markup}},
		"/settings/developers/apps": {
			"name": {markup}, "redirect_uris": {markup}, "kind": {markup}, "platform": {markup}, "method": {markup},
			"resource": {markup}, "permissions": {markup},
		},
		"/settings/connectors/policy": {"platforms": {markup}, "days": {markup}, "permissions": {markup}},
		"/settings/passkeys":          {"name": {strings.Repeat(markup, 4)}, "answer": {markup}},
		"/oauth/authorize":            {"ticket": {markup}, "decision": {markup}},
	} {
		page := e.person.Submit(t, sent(t, p, path, e.Workspace.ID, keyOf(t, p, e.person), values))
		wantsInert(t, page, "POST "+path)
		if page.Status < 400 {
			t.Errorf("POST %s: %s", path, page)
		}
	}
	page := e.person.Submit(t, harness.Form{
		Action: p.BaseURL + e.publicForm() + "/embed?frame=" + url.QueryEscape(markup),
		Fields: url.Values{"email": {markup}, "submissionToken": {markup}},
	})
	wantsInert(t, page, "the public form")
}

func TestBrowser_StoredNamesRunNoScript(t *testing.T) {
	p := newProduct(t)
	e := newMarkedTarget(t, p)
	browser := p.Browser(t, harness.Laptop)
	browser.Open(p.AuthorizeURL(e.connector.Begin().Query))
	browser.Fill("#email", e.Owner.Email)
	browser.Fill("#password", e.Owner.Password)
	browser.Click(`form[action="/login"] button`)
	browser.See(`button[name=decision][value=approve]`)
	for address := range pagesOf(p, e) {
		browser.Open(address)
		if harness.Evaluate[bool](browser, `typeof pwned !== "undefined"`) {
			_, path, _ := strings.Cut(address, "//")
			t.Errorf("a name ran as a script at %s", path)
		}
	}
	for _, complaint := range browser.Complaints() { // about what the policy blocked
		t.Errorf("the browser complains: %s", complaint)
	}
}

// ofForm reports whether a script is one of the two of a public form.
func ofForm(source string) bool {
	return strings.HasSuffix(source, "/public/form.js") || strings.HasSuffix(source, "/public/height.js")
}
