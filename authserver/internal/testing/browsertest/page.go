package browsertest

import (
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/html"
)

// A Page is a response, parsed as HTML.
type Page struct {
	browser *Browser
	Status  int
	Header  http.Header
	Body    string
	root    *html.Node
}

// Fields are the fields of a form with their values, and the pressed button.
type Fields map[string]string

func newPage(b *Browser, response *http.Response, content string) *Page {
	b.t.Helper()
	root, err := html.Parse(strings.NewReader(content))
	if err != nil {
		b.t.Fatal(err)
	}
	return &Page{b, response.StatusCode, response.Header, content, root}
}

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
func (p *Page) Text() string { return TextOf(p.root) }

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
func (p *Page) Elements(name string) []*html.Node {
	var out []*html.Node
	for n := range p.root.Descendants() {
		if n.Type == html.ElementNode && n.Data == name {
			out = append(out, n)
		}
	}
	return out
}

// Attribute returns an attribute of an element, or "".
func Attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// Form returns what the first form with this action sends if nothing is changed: inputs, text areas and selected
// options.
func (p *Page) Form(action string) url.Values {
	p.browser.t.Helper()
	return formValues(p.form(action))
}

// Pressed returns what Form does, with the value of the form's first named button.
func (p *Page) Pressed(action string) url.Values {
	p.browser.t.Helper()
	form := p.form(action)
	values := formValues(form)
	for n := range form.Descendants() {
		if n.Data == "button" && Attribute(n, "name") != "" {
			values.Set(Attribute(n, "name"), Attribute(n, "value"))
			return values
		}
	}
	p.browser.t.Fatalf("the form to %s has no named button:\n%s", action, p.Text())
	return nil
}

func (p *Page) form(action string) *html.Node {
	p.browser.t.Helper()
	for _, form := range p.Elements("form") {
		if Attribute(form, "action") == action && strings.EqualFold(Attribute(form, "method"), "post") {
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

func formValues(form *html.Node) url.Values {
	out := url.Values{}
	for n := range form.Descendants() {
		name := Attribute(n, "name")
		if n.Type != html.ElementNode || name == "" {
			continue
		}
		switch n.Data {
		case "input":
			addInput(out, n, name)
		case "textarea":
			out.Add(name, text(n))
		case "select":
			out.Add(name, selected(n))
		}
	}
	return out
}

func addInput(out url.Values, n *html.Node, name string) {
	kind := Attribute(n, "type")
	if kind != "checkbox" && kind != "radio" {
		out.Add(name, Attribute(n, "value"))
		return
	}
	if has(n, "checked") {
		out.Add(name, Attribute(n, "value"))
	}
}

func selected(n *html.Node) string {
	value, found := "", false
	for option := range n.Descendants() {
		if option.Type == html.ElementNode && option.Data == "option" && (!found || has(option, "selected")) {
			value, found = Attribute(option, "value"), true
		}
	}
	return value
}

func has(n *html.Node, name string) bool {
	for _, a := range n.Attr {
		if a.Key == name {
			return true
		}
	}
	return false
}

func text(n *html.Node) string {
	var out strings.Builder
	for child := range n.Descendants() {
		if child.Type == html.TextNode {
			out.WriteString(child.Data)
		}
	}
	return out.String()
}
