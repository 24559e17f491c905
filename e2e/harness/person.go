package harness

import (
	"bytes"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/PuerkitoBio/goquery"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// A Person is a user at a browser. Cookies are stored and forms are sent with their fields. Redirects are followed
// only on request and only within the app.
type Person struct {
	demo.User
	Header http.Header // of every request

	product *Product
	client  *http.Client
}

// Person returns a user at a new browser without cookies.
func (p *Product) Person(t testing.TB, user demo.User) *Person {
	t.Helper()
	jar, err := cookiejar.New(nil)
	must(t, err)
	p.secrets.Add("password", user.Password)
	client := &http.Client{Jar: jar, Timeout: timeout, CheckRedirect: followNothing, Transport: p.client.Transport}
	return &Person{User: user, Header: http.Header{}, product: p, client: client}
}

// Open opens a URL without following redirects.
func (p *Person) Open(t testing.TB, address string) Page {
	t.Helper()
	return p.Request(t, http.MethodGet, address, "", "")
}

// Request sends a request with any method and body from this browser.
func (p *Person) Request(t testing.TB, method, address, contentType, body string) Page {
	t.Helper()
	page, err := p.Try(t, method, address, contentType, body)
	if err != nil {
		t.Fatalf("%s: %v", page.Request, err)
	}
	return page
}

// Try is like Request for requests that may get no response.
func (p *Person) Try(t testing.TB, method, address, contentType, body string) (Page, error) {
	t.Helper()
	answer, err := API{p.product, p.client, "", p.Header}.Try(t, method, address, contentType, body)
	return newPage(t, p, address, answer), err
}

// Submit sends a form.
func (p *Person) Submit(t testing.TB, form Form) Page {
	t.Helper()
	return p.Request(t, http.MethodPost, form.Action, formType, form.Fields.Encode())
}

// SignIn fills in and submits the form of the login page. It returns the response: a redirect, or the page again.
func (p *Person) SignIn(t testing.TB, login Page) Page {
	t.Helper()
	form := login.FormWith(t, "form input[name=password]")
	form.Fields.Set("email", p.Email)
	form.Fields.Set("password", p.Password)
	return p.Submit(t, form)
}

// Arrive opens a URL as a browser would: it follows redirects within the app and signs in on the login page. It
// returns the first other response.
func (p *Person) Arrive(t testing.TB, address string) Page {
	t.Helper()
	page := p.Open(t, address)
	for range 6 {
		switch {
		case page.IsLogin():
			page = p.SignIn(t, page)
		case page.leadsWithin():
			page = p.Follow(t, page)
		default:
			return page
		}
	}
	t.Fatalf("too many redirects from %s", page.Request)
	return Page{}
}

// Follow opens the redirect target of a page, which must be within the app.
func (p *Person) Follow(t testing.TB, page Page) Page {
	t.Helper()
	if !page.leadsWithin() {
		t.Fatalf("want a redirect within the app:\n%s", page)
	}
	next, err := page.URL.Parse(page.Header.Get("Location"))
	if err != nil {
		t.Fatalf("the redirect target is not a URL:\n%s", page)
	}
	return p.Open(t, next.String())
}

// leadsWithin reports whether the response redirects to another page of the app.
func (p Page) leadsWithin() bool {
	if p.Status < 300 || p.Status > 399 {
		return false
	}
	next, err := p.URL.Parse(p.Header.Get("Location"))
	app, err2 := url.Parse(p.person.product.AppURL)
	return err == nil && err2 == nil && next.Scheme == app.Scheme && next.Host == app.Host
}

// SignedIn signs the person in on the login page.
func (p *Person) SignedIn(t testing.TB) *Person {
	t.Helper()
	var answer Page
	await.True(t, "passwords are checked", func() bool { // too many people may be signing in on a busy machine
		answer = p.SignIn(t, p.Open(t, p.product.AppURL+"/login"))
		return answer.Status != http.StatusTooManyRequests
	})
	if answer.Status != http.StatusSeeOther {
		t.Fatalf("sign-in failed:\n%s", answer)
	}
	return p
}

// Consent opens the authorization request, which must lead to the consent page.
func (p *Person) Consent(t testing.TB, request url.Values) Page {
	t.Helper()
	page := p.Arrive(t, p.product.AuthorizeURL(request))
	if !page.IsConsent() {
		t.Fatalf("want the consent page:\n%s", page)
	}
	return page
}

// AuthorizeURL returns the URL of the consent page (spec 4.4) for a request. A parameter with several values is sent
// several times.
func (p *Product) AuthorizeURL(request url.Values) string {
	return p.AppURL + "/oauth/authorize?" + request.Encode()
}

// Cookies returns the Cookie header that this browser would send to the app.
func (p *Person) Cookies() string {
	app, err := url.Parse(p.product.AppURL)
	if err != nil {
		return ""
	}
	var out []string
	for _, cookie := range p.client.Jar.Cookies(app) {
		out = append(out, cookie.Name+"="+cookie.Value)
	}
	return strings.Join(out, "; ")
}

// A Page is a response to a person's browser: an HTML page or a redirect.
type Page struct {
	Answer
	URL *url.URL

	person   *Person
	document *goquery.Document
}

func newPage(t testing.TB, person *Person, address string, answer Answer) Page {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal("the address of a page cannot be parsed")
	}
	document, err := goquery.NewDocumentFromReader(bytes.NewReader(answer.Body))
	if err != nil {
		t.Fatalf("no HTML (%v):\n%s", err, answer)
	}
	return Page{Answer: answer, URL: parsed, person: person, document: document}
}

// Text returns the visible text with white space collapsed.
func (p Page) Text() string { return readable(p.Body) }

func readable(page []byte) string {
	document, err := goquery.NewDocumentFromReader(bytes.NewReader(page))
	if err != nil {
		return ""
	}
	visible := document.Find("body")
	visible.Find("script, style, template").Remove()
	return strings.Join(strings.Fields(visible.Text()), " ")
}

// Find returns the elements that match a CSS selector.
func (p Page) Find(selector string) *goquery.Selection { return p.document.Find(selector) }

// WantsText checks that the visible text contains all of the words.
func (p Page) WantsText(t testing.TB, words ...string) {
	t.Helper()
	text := p.Text()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("the page does not contain %q:\n%s", word, p)
		}
	}
}

// WantsPage checks that this is an HTML page with the status, one heading and a title, and not a redirect.
func (p Page) WantsPage(t testing.TB, status int) Page {
	t.Helper()
	p.Wants(t, status)
	if kind := p.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/html") {
		t.Errorf("Content-Type %q is not HTML:\n%s", kind, p)
	}
	if location := p.Header.Get("Location"); location != "" {
		t.Errorf("a page with a Location:\n%s", p)
	}
	if p.Find("h1").Length() != 1 || strings.TrimSpace(p.Find("title").Text()) == "" {
		t.Errorf("want one heading and a title:\n%s", p)
	}
	return p
}

// IsLogin reports whether this is the login page.
func (p Page) IsLogin() bool {
	return p.Status == http.StatusOK && p.Find("form input[name=email]").Length() == 1 &&
		p.Find("form input[name=password]").Length() == 1
}

// IsConsent reports whether this is the consent page.
func (p Page) IsConsent() bool {
	return p.Status == http.StatusOK && p.Find(decision("approve")).Length() == 1 &&
		p.Find(decision("deny")).Length() == 1
}

// decision selects a button of the consent page.
func decision(value string) string {
	return `form button[type=submit][name=decision][value=` + value + `]`
}

// A Form is the target and the fields of a form.
type Form struct {
	Action string
	Fields url.Values
}

// FormWith returns the form that contains the single element that matches the selector, with its hidden and filled-in
// fields. If the element is a button, it is pressed.
func (p Page) FormWith(t testing.TB, selector string) Form {
	t.Helper()
	element := p.document.Find(selector)
	form := element.Closest("form")
	if element.Length() != 1 || form.Length() != 1 ||
		!strings.EqualFold(form.AttrOr("method", "get"), http.MethodPost) {
		t.Fatalf("no single form to post with %s:\n%s", selector, p)
	}
	action, err := p.URL.Parse(form.AttrOr("action", ""))
	if err != nil {
		t.Fatalf("%s: the form's action is not a URL", p.Request)
	}
	fields := url.Values{}
	form.Find("input[name]").Each(func(_ int, input *goquery.Selection) {
		kind := input.AttrOr("type", "text")
		_, checked := input.Attr("checked")
		if kind != "submit" && kind != "button" && (checked || (kind != "checkbox" && kind != "radio")) {
			fields.Add(input.AttrOr("name", ""), input.AttrOr("value", ""))
		}
	})
	if name := element.AttrOr("name", ""); element.Is("button") && name != "" {
		fields.Set(name, element.AttrOr("value", ""))
	}
	return Form{Action: action.String(), Fields: fields}
}

// DecisionForm returns the form of the consent page with one of its buttons pressed: "approve" or "deny".
func (p Page) DecisionForm(t testing.TB, button string) Form {
	t.Helper()
	return p.FormWith(t, decision(button))
}

// Press submits the consent page's form with one of its buttons.
func (p Page) Press(t testing.TB, button string) Page {
	t.Helper()
	return p.person.Submit(t, p.DecisionForm(t, button))
}

// Approve approves and returns the code in the callback.
func (p Page) Approve(t testing.TB) string {
	t.Helper()
	callback := p.Press(t, "approve").Callback(t)
	if callback.Code() == "" {
		t.Fatalf("approved, but the callback has no code: %v", callback.Names())
	}
	return callback.Code()
}

// A Callback is a redirect to an application: its target and its parameters.
type Callback struct {
	URI    string // without the query
	Values url.Values
	Raw    string // the query as it was sent
}

// Callback returns the redirect in this page. It must be a 302 or 303, so that browsers follow with GET, to a URL
// outside the app.
func (p Page) Callback(t testing.TB) Callback {
	t.Helper()
	if p.Status != http.StatusSeeOther && p.Status != http.StatusFound {
		t.Fatalf("want a redirect to the callback:\n%s", p)
	}
	location := p.Header.Get("Location")
	if strings.HasPrefix(location, "/") || strings.HasPrefix(location, p.person.product.AppURL) {
		t.Fatalf("want a redirect to the callback, not within the app:\n%s", p)
	}
	uri, query, _ := strings.Cut(location, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		t.Fatalf("the callback's query cannot be parsed:\n%s", p)
	}
	return Callback{URI: uri, Values: values, Raw: query}
}

// Code returns the authorization code, or "".
func (c Callback) Code() string { return c.Values.Get("code") }

// Names returns the names of the parameters, sorted.
func (c Callback) Names() []string { return slices.Sorted(maps.Keys(c.Values)) }
