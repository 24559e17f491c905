package attack

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

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
			who.Open(t, p.AuthorizeURL(p.DemoConnector().Begin().Query)),
			who.Open(t, p.AppURL+"/nothing"),
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
	framed := func() bool {
		for _, complaint := range browser.Complaints() {
			if strings.Contains(complaint, "frame-ancestors") {
				return true
			}
		}
		return false
	}
	await.True(t, "the browser refuses to show the consent page in a frame of another site", framed)
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
