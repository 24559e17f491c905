// Package browsertest opens the pages of an apitest.Server in a simple browser (Browser). The browser fills in forms
// and stores cookies but runs no scripts: what it can do works without JavaScript.
package browsertest

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/PuerkitoBio/goquery"
	"github.com/google/uuid"
	"golang.org/x/net/html"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A Browser stores cookies and follows redirects only on request.
type Browser struct {
	t       testing.TB
	origin  string
	client  *http.Client
	Log     *testkit.Log // of the server, or nil: its lines explain failures
	Headers http.Header  // sent with every request
}

// Browser opens a browser without cookies.
func (s *Server) Browser() *Browser {
	s.t.Helper()
	b := At(s.t, s.URL)
	b.Log = s.Log
	b.Headers.Set("X-Forwarded-For", apitest.NewAddress()) // limits count failures by address
	return b
}

// At opens a new browser for a server at origin that the test serves itself.
func At(t testing.TB, origin string) *Browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Browser{
		t:       t,
		origin:  origin,
		Headers: http.Header{},
		client: &http.Client{
			Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// SignedIn opens a browser in which person has signed in.
func (s *Server) SignedIn(person Person) *Browser {
	s.t.Helper()
	b := s.Browser()
	b.SignIn(person)
	return b
}

// SignIn signs person in.
func (b *Browser) SignIn(person Person) {
	b.t.Helper()
	page := b.Arranged(func() *Page {
		form := b.Get("/login")
		if form.Status == http.StatusServiceUnavailable {
			return form
		}
		return form.Send("/login", Fields{"email": person.Email, "password": Password})
	})
	if page.As("sign-in").Wants(http.StatusSeeOther).Status != http.StatusSeeOther {
		b.t.FailNow()
	}
}

// Arranged sends a request again while the response is a 503: if a store exceeds the server's time limits while a test
// is set up, the machine is busy.
func (b *Browser) Arranged(send func() *Page) *Page {
	b.t.Helper()
	for end := time.Now().Add(await.Long); ; {
		if page := send(); page.Status != http.StatusServiceUnavailable || time.Now().After(end) {
			return page
		}
	}
}

// Cookies returns the cookies that the browser sends to the server.
func (b *Browser) Cookies() []*http.Cookie {
	at, _ := url.Parse(b.origin)
	return b.client.Jar.Cookies(at)
}

// Session returns the value of the session's cookie, or "".
func (b *Browser) Session() string {
	for _, cookie := range b.Cookies() {
		if cookie.Name == "almoner" {
			return cookie.Value
		}
	}
	return ""
}

// SetCookies adds cookies of the server to the browser.
func (b *Browser) SetCookies(cookies []*http.Cookie) {
	at, _ := url.Parse(b.origin)
	b.client.Jar.SetCookies(at, cookies)
}

// Get opens a path.
func (b *Browser) Get(path string) *Page {
	b.t.Helper()
	return b.Do(http.MethodGet, path, "", nil)
}

// Do sends any request.
func (b *Browser) Do(method, path, contentType string, body io.Reader) *Page {
	b.t.Helper()
	return b.send(sent{method: method, path: path}, contentType, body)
}

func (b *Browser) send(what sent, contentType string, body io.Reader) *Page {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), what.method, b.origin+what.path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	maps.Copy(request.Header, b.Headers)
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := b.client.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	document, err := goquery.NewDocumentFromReader(bytes.NewReader(content))
	if err != nil {
		b.t.Fatal(err)
	}
	return &Page{
		browser:  b,
		sent:     what,
		Status:   response.StatusCode,
		Header:   response.Header,
		Body:     string(content),
		document: document,
	}
}

// Post sends a form that no page has offered.
func (b *Browser) Post(path string, fields url.Values) *Page {
	b.t.Helper()
	what := sent{method: http.MethodPost, path: path, form: fields}
	return b.send(what, "application/x-www-form-urlencoded", strings.NewReader(fields.Encode()))
}

// The base URL of the API, its resource identifier, and the password of every user that a Server creates.
const (
	Issuer   = apitest.Issuer
	Resource = apitest.REST
	Password = "correct horse battery staple"
)

// A Server is authserver with users who can sign in.
type Server struct {
	*apitest.Server
	t    testing.TB
	hash credential.Secret
}

var running = testkit.Once(func(t testing.TB) *Server { return Own(t) })

// Shared returns a new workspace of the service that the tests of this process share. The test runs beside the others.
func Shared(t testing.TB) *Server {
	t.Helper()
	Parallel(t)
	return running(t).For(t)
}

// Parallel is t.Parallel, unless t stands for the process in testkit.Once.
func Parallel(t testing.TB) {
	if test, ok := t.(*testing.T); ok {
		test.Parallel()
	}
}

// For returns a new workspace of the same service for another test.
func (s *Server) For(t testing.TB) *Server {
	t.Helper()
	return &Server{t: t, hash: s.hash, Server: s.Server.For(t)}
}

// Own serves a Server of this test alone, which may move the clock, stop a store, or change the schema or, with changes
// like those of apitest.Own, the configuration. The test runs beside the others. Requests may come from any address,
// because the loopback address is a trusted proxy.
func Own(t testing.TB, changes ...apitest.Change) *Server {
	t.Helper()
	Parallel(t)
	hash, err := session.HashPassword(Password, session.LowestCost())
	if err != nil {
		t.Fatal(err)
	}
	local := func(c *app.Config, url string) { c.AppURL, c.TrustedProxies = url, "127.0.0.1,::1" }
	return &Server{t: t, hash: hash, Server: apitest.Own(t, append([]apitest.Change{local}, changes...)...)}
}

// A Person is a user of the server.
type Person struct {
	ID    uuid.UUID
	Email string
}

// Stranger creates a user who can sign in and is a member of no workspace.
func (s *Server) Stranger() Person {
	s.t.Helper()
	email := "person-" + uuid.NewString()[:8] + "@example.org"
	id := s.Fixture.User(email)
	s.Fixture.Exec(`update account.users set password_hash = $2 where id = $1`, id, s.hash.Reveal())
	return Person{id, email}
}

// Member creates a user who can sign in and holds permissions in the fixture's workspace.
func (s *Server) Member(permissions ...perm.Permission) Person {
	s.t.Helper()
	person := s.Stranger()
	s.Fixture.Join(s.Fixture.WorkspaceID, person.ID, permissions...)
	return person
}

// CountIs checks the result of a query for one number.
func (s *Server) CountIs(want int, query string, args ...any) {
	s.t.Helper()
	if n := s.Count(query, args...); n != want {
		s.t.Errorf("%d, want %d: %s\n  repeat: %s", n, want, query, again(s.t.Name()))
	}
}

// Rows checks how many rows of the fixture's workspace a table has, or how many of them meet a condition.
func (s *Server) Rows(want int, table, condition string, args ...any) {
	s.t.Helper()
	query := "select count(*) from account." + table + " where tenant_id = '" + s.Fixture.WorkspaceID.String() + "'"
	if condition != "" {
		query += " and (" + condition + ")"
	}
	s.CountIs(want, query, args...)
}

// A Page is a response, parsed as HTML.
type Page struct {
	browser  *Browser
	sent     sent
	name     string // in what its checks report
	Status   int
	Header   http.Header
	Body     string
	document *goquery.Document
}

// sent is a request, for what the checks report.
type sent struct {
	method, path string
	form         url.Values
}

// Fields are the fields of a form with their values, and the pressed button.
type Fields map[string]string

// Location returns the URL that the page redirects to.
func (p *Page) Location() string { return p.Header.Get("Location") }

// Follow opens the local path that the page redirects to.
func (p *Page) Follow() *Page {
	p.browser.t.Helper()
	if p.Status != http.StatusSeeOther || !strings.HasPrefix(p.Location(), "/") {
		p.browser.t.Fatalf("no local redirect: %d %q\n%s", p.Status, p.Location(), p.Text())
	}
	return p.browser.Get(p.Location())
}

// Text returns the text of the page, with white space joined.
func (p *Page) Text() string { return TextOf(p.document.Nodes[0]) }

// TextOf returns the text of an element, with white space joined.
func TextOf(element *html.Node) string {
	var out strings.Builder
	for n := range element.Descendants() {
		if n.Type == html.TextNode && n.Parent.Data != "script" && n.Parent.Data != "style" {
			out.WriteString(n.Data)
			if next := n.NextSibling; next == nil || next.Data != "wbr" {
				out.WriteString(" ")
			}
		}
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

// HasText reports whether the text of the page contains words.
func (p *Page) HasText(words string) bool { return strings.Contains(p.Text(), words) }

// Elements returns all elements with a name.
func (p *Page) Elements(name string) []*html.Node { return p.document.Find(name).Nodes }

// Attribute returns an attribute of an element, or "".
func Attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// Links returns the targets of the page's links that begin with prefix.
func (p *Page) Links(prefix string) (found []string) {
	for _, a := range p.document.Find("a").EachIter() {
		if href := a.AttrOr("href", ""); href != "" && strings.HasPrefix(href, prefix) {
			found = append(found, href)
		}
	}
	return found
}

// Link returns the target of the page's first link that begins with prefix.
func (p *Page) Link(prefix string) string {
	p.browser.t.Helper()
	found := p.Links(prefix)
	if len(found) == 0 {
		p.browser.t.Fatalf("no link to %s: %d %s", prefix, p.Status, p.Text())
	}
	return found[0]
}

// All returns an attribute of all elements that a CSS selector selects.
func (p *Page) All(selector, name string) []string {
	return p.document.Find(selector).Map(func(_ int, e *goquery.Selection) string { return e.AttrOr(name, "") })
}

// Attribute returns an attribute of the first element that a CSS selector selects, or "".
func (p *Page) Attribute(selector, name string) string {
	return p.document.Find(selector).AttrOr(name, "")
}

// Form returns what the first form with this action sends if nothing is changed: inputs, text areas and selected
// options.
func (p *Page) Form(action string) url.Values {
	p.browser.t.Helper()
	values := url.Values{}
	for _, field := range p.form(action).Find("input[name], textarea[name], select[name]").EachIter() {
		value := field.AttrOr("value", "")
		switch {
		case field.Is("input[type=checkbox]:not([checked]), input[type=radio]:not([checked])"):
			continue
		case field.Is("textarea"):
			value = field.Text()
		case field.Is("select"):
			chosen := field.Find("option[selected]").Last()
			value = chosen.AttrOr("value", field.Find("option").AttrOr("value", ""))
		}
		values.Add(field.AttrOr("name", ""), value)
	}
	return values
}

// Pressed returns what Form does, with the value of the form's first named button.
func (p *Page) Pressed(action string) url.Values {
	p.browser.t.Helper()
	values, button := p.Form(action), p.form(action).Find("button[name]").First()
	if button.Length() == 0 {
		p.browser.t.Fatalf("the form to %s has no named button:\n%s", action, p.Text())
	}
	values.Set(button.AttrOr("name", ""), button.AttrOr("value", ""))
	return values
}

func (p *Page) form(action string) *goquery.Selection {
	p.browser.t.Helper()
	for _, form := range p.document.Find("form").EachIter() {
		if form.AttrOr("action", "") == action && strings.EqualFold(form.AttrOr("method", ""), "post") {
			return form
		}
	}
	p.browser.t.Fatalf("no form to %s on this page (%d):\n%s", action, p.Status, p.Text())
	return nil
}

// Send fills in the form with this action and sends it.
func (p *Page) Send(action string, fields Fields) *Page {
	p.browser.t.Helper()
	values := p.Form(action)
	for name, value := range fields {
		values.Set(name, value)
	}
	return p.browser.Post(action, values)
}
