package attack

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Where a code may go and where a page may lead: redirect URIs must match exactly, and no page leads out of the app.

// lookalikes returns URIs that a lenient comparison takes for harness.RedirectURI.
func lookalikes() []string {
	const host, path, https = "app.canal-lane.example", "/oauth/callback", "https://"
	all := []string{
		"https://APP.canal-lane.example" + path, "HTTPS://" + host + path, "http://" + host + path,
		" " + harness.RedirectURI, "//" + host + path, path, "oauth/callback", host + path, "https:" + host + path,
		"https:/" + host + path, "https:///" + host + path, "javascript:alert(1)//" + harness.RedirectURI,
		"data:text/html," + harness.RedirectURI, "https://evil.example", "https://evil.example/?" + harness.RedirectURI,
		"https://evil.example#" + harness.RedirectURI, https + host + "/*", "*", "", "null",
		"urn:ietf:wg:oauth:2.0:oob", "http://localhost" + path,
	}
	for _, after := range []string{
		"/", "?", "#", "?x=1", "#/evil", "/../evil", "/..;/evil", ";evil", "%00", "%23", "\x00", "\t", " ",
		"\r\nLocation: https://evil.example", " https://evil.example", ",https://evil.example", "?code=x&state=y&iss=z",
	} {
		all = append(all, harness.RedirectURI+after)
	}
	for _, other := range []string{
		host + ":443", host + ":8443", host + ".", "evil.example", host + ".evil.example", "evil" + host,
		"canal-lane.example", host + "@evil.example", "evil.example@" + host, host + "%40evil.example",
		`evil.example\@` + host, host + `\.evil.example`, "*.canal-lane.example", "xn--app-canal-lane.example",
	} {
		all = append(all, https+other+path)
	}
	for _, other := range []string{
		"/OAuth/callback", "//oauth/callback", "/./oauth/callback", "/x/../oauth/callback", "/oauth/%63allback",
		"/oauth%2Fcallback", "/oauth/callbаck",
	} {
		all = append(all, https+host+other)
	}
	return all
}

func TestAuthorize_RedirectsOnlyToRegisteredURI(t *testing.T) {
	p := newProduct(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner).SignedIn(t)
	connector, app := ws.Connector(t, harness.ReadProgrammes), ws.Confidential(t, "", harness.ReadProgrammes)
	for _, wrong := range lookalikes() {
		for _, query := range []url.Values{connector.Begin().Query, app.Request()} {
			query.Set("redirect_uri", wrong)
			wantsNoRedirect(t, owner.Open(t, p.AuthorizeURL(query)), wrong)
			query.Set("response_type", "nonsense") // an error must not go there either
			wantsNoRedirect(t, owner.Open(t, p.AuthorizeURL(query)), wrong)
		}
	}
	// The registered URI works, so the others were refused for their differences.
	owner.Consent(t, connector.Begin().Query)
	query := connector.Begin().Query
	query.Set("redirect_uri", connector.RedirectURI)
	query.Add("redirect_uri", "https://evil.example/")
	wantsNoRedirect(t, owner.Open(t, p.AuthorizeURL(query)), "twice")
	// A loopback URI of a registered client is compared like any other: another port or host name is another URI.
	const loopback = "http://127.0.0.1:7000/callback?keep=1"
	body := harness.ConnectorBody(p.BaseURL+"/v1", harness.ReadProgrammes)
	body["redirectUris"] = []string{loopback}
	connector.ClientID, _ = ws.Register(t, body).Wants(t, http.StatusCreated).Object(t)["clientId"].(string)
	for _, wrong := range []string{
		strings.Replace(loopback, ":7000", ":7001", 1), strings.Replace(loopback, ":7000", "", 1),
		strings.Replace(loopback, "127.0.0.1", "localhost", 1), strings.Replace(loopback, "127.0.0.1", "127.1", 1),
		strings.Replace(loopback, "127.0.0.1", "[::1]", 1), strings.Replace(loopback, "127.0.0.1", "2130706433", 1),
		strings.TrimSuffix(loopback, "?keep=1"), loopback + "&evil=1",
	} {
		query := connector.Begin().Query
		query.Set("redirect_uri", wrong)
		wantsNoRedirect(t, owner.Open(t, p.AuthorizeURL(query)), wrong)
	}
	connector.RedirectURI = loopback
	owner.Consent(t, connector.Begin().Query)
}

func wantsNoRedirect(t *testing.T, page harness.Page, what string) {
	t.Helper()
	if page.Status != http.StatusBadRequest || page.Header.Get("Location") != "" || page.Header.Get("Refresh") != "" {
		t.Errorf("%q: want a page, 400:\n%s", what, page)
	}
	if policy := page.Header.Get("Content-Security-Policy"); strings.Contains(policy, "evil") {
		t.Errorf("%q is in the policy of the page: %s", what, policy)
	}
}

// outside returns addresses that a browser reads as another host or as a script.
func outside() []string {
	return []string{
		"https://evil.example/", "//evil.example", "///evil.example", `/\evil.example`, `\\evil.example`,
		`/\/evil.example`, "/\t/evil.example", "/%09/evil.example", "/\n/evil.example", "javascript:alert(1)",
		"data:text/html,x", "/%2F/evil.example", "/%5Cevil.example", "//evil.example/%2f..", "/.//evil.example",
		"https:evil.example", "http:///evil.example", "@evil.example", "evil.example",
		"/settings/user\r\nLocation: https://evil.example", "//%5cevil.example",
	}
}

// TestPages_DoNotRedirectOutOfTheApp checks that no parameter of a page leads out of the app by a redirect, a link or a
// form.
func TestPages_DoNotRedirectOutOfTheApp(t *testing.T) {
	p := newProduct(t)
	ws := p.NewWorkspace(t)
	opened, _ := pagesAndForms(t)
	stranger, member := p.Person(t, ws.Owner), p.Person(t, ws.Owner).SignedIn(t)
	for place, path := range opened {
		if t.Failed() {
			return // a build without the protection fails everywhere
		}
		queries := []url.Values{}
		for _, elsewhere := range outside()[:2] { // no page uses these parameters
			queries = append(queries, url.Values{
				"next": {elsewhere}, "redirect_uri": {elsewhere}, "url": {elsewhere}, "return_to": {elsewhere},
			})
		}
		tried := outside()
		if !strings.HasPrefix(path, "/login") { // only pages of the sign-in use this parameter
			tried = choice(tried, 2, place)
		}
		for _, elsewhere := range tried {
			queries = append(queries, url.Values{"return": {elsewhere}})
		}
		for _, query := range queries {
			for _, who := range []*harness.Person{stranger, member} {
				wantsToStay(t, p, who.Open(t, p.AppURL+path+"?"+query.Encode()), query.Encode())
			}
		}
	}
	for _, elsewhere := range outside() { // form fields
		again := url.Values{"password": {ws.Owner.Password}, "return": {elsewhere}}
		wantsToStay(t, p, member.Submit(t, formAt(p, "/login/again", again)), elsewhere)
		first := url.Values{"email": {ws.Owner.Email}, "password": {ws.Owner.Password}, "return": {elsewhere}}
		wantsToStay(t, p, p.Person(t, ws.Owner).Submit(t, formAt(p, "/login", first)), elsewhere)
		wantsToStay(t, p, stranger.Submit(t, formAt(p, "/logout", url.Values{"return": {elsewhere}})), elsewhere)
	}
}

func wantsToStay(t *testing.T, p *harness.Product, page harness.Page, elsewhere string) {
	t.Helper()
	if location := page.Header.Get("Location"); location != "" {
		target, err := page.URL.Parse(location)
		if err != nil || target.Scheme+"://"+target.Host != p.AppURL || strings.ContainsAny(location, "\\\t\r\n") ||
			strings.HasPrefix(location, "//") {
			t.Errorf("%q redirects to %q:\n%s", elsewhere, location, page)
		}
	}
	for _, selector := range []string{"a[href]", "form[action]", "link[href]", "meta[http-equiv]"} {
		for _, node := range page.Find(selector).EachIter() {
			address := node.AttrOr("href", node.AttrOr("action", node.AttrOr("content", "")))
			target, err := page.URL.Parse(address)
			editor := err == nil && (target.Scheme == "vscode" || target.Scheme == "cursor")
			if editor && !strings.Contains(address, "evil") {
				continue // it adds this service to an editor
			}
			if err != nil || (target.Scheme+"://"+target.Host != p.AppURL &&
				target.Scheme+"://"+target.Host+target.Path != p.BaseURL+"/v1/docs") {
				t.Errorf("%q is on the page as %q:\n%s", elsewhere, address, page)
			}
		}
	}
	kept := page.Find("input[name=return]").AttrOr("value", "")
	if strings.HasPrefix(kept, "//") || strings.Contains(kept, `\`) || (kept != "" && kept[0] != '/') {
		t.Errorf("%q is on the page as %q", elsewhere, kept)
	}
}
