package harness

import (
	"bytes"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/PuerkitoBio/goquery"
)

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
	return p.Status == http.StatusOK && p.decision("approve").Length() == 1 && p.decision("deny").Length() == 1
}

func (p Page) decision(value string) *goquery.Selection {
	return p.document.Find(`form button[type=submit][name=decision][value=` + value + `]`)
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
	return p.FormWith(t, `form button[type=submit][name=decision][value=`+button+`]`)
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

// WantsError checks for an error of RFC 6749, section 4.1.2.1, with state and iss (RFC 9207) and no other parameter.
// Several codes mean that the contract allows any of them. An empty state means that the callback must not have one.
func (c Callback) WantsError(t testing.TB, uri, state, issuer string, codes ...string) {
	t.Helper()
	want := []string{"error", "error_description", "iss", "state"}
	if state == "" {
		want = want[:3]
	}
	if c.URI != uri || !slices.Equal(c.Names(), want) {
		t.Errorf("redirected to %s with %v, want %s with %v", c.URI, c.Names(), uri, want)
	}
	if !slices.Contains(codes, c.Values.Get("error")) || c.Values.Get("error_description") == "" {
		t.Errorf("error %q (%s), want %v and a description", c.Values.Get("error"),
			Redact(c.Values.Get("error_description")), codes)
	}
	if c.Values.Get("state") != state || c.Values.Get("iss") != issuer {
		t.Errorf("wrong state or iss in the error: iss %q, state of %d bytes, want %d", c.Values.Get("iss"),
			len(c.Values.Get("state")), len(state))
	}
}
