package doctor

import (
	"bytes"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"github.com/almonerhq/almoner/authserver/internal/doctor/wire"
)

// A page is a parsed HTML page.
type page struct {
	at   *url.URL
	root *html.Node
}

// A form holds what a form of a page sends by default, and its choices.
type form struct {
	action   *url.URL
	post     bool
	fields   url.Values
	password string   // name of the password field, "" for none
	login    string   // name of the field for the user name
	buttons  []choice // submit buttons, by name and value
	choices  []choice // radio buttons and options of selects
}

// A choice is one value of a field, with its label.
type choice struct{ name, value, label string }

func readPage(answer *wire.Answer) (page, bool) {
	at, err := url.Parse(answer.Request.URL)
	if err != nil {
		return page{}, false
	}
	root, err := html.Parse(bytes.NewReader(answer.Body))
	return page{at, root}, err == nil
}

// saidBy returns the message of a page: its alert, its heading, or its title.
func saidBy(answer *wire.Answer) string {
	p, ok := readPage(answer)
	if !ok {
		return ""
	}
	for n := range p.root.Descendants() {
		if n.Type != html.ElementNode || value(n, "role") != "alert" {
			continue
		}
		if text := words(n); text != "" { // a script fills an empty one
			return "the page says " + quote(text)
		}
	}
	for _, name := range []string{"h1", "title"} {
		for n := range p.root.Descendants() {
			if n.Type == html.ElementNode && n.Data == name {
				text := words(n)
				if next := after(n); next != "" && name == "h1" {
					text += ": " + next
				}
				return "the page says " + quote(text)
			}
		}
	}
	return ""
}

// after returns the text of the paragraph that follows a heading.
func after(n *html.Node) string {
	for next := n.NextSibling; next != nil; next = next.NextSibling {
		if next.Type == html.ElementNode {
			if next.Data == "p" || next.Data == "div" {
				return words(next)
			}
			return ""
		}
	}
	return ""
}

func words(n *html.Node) string {
	var out strings.Builder
	for child := range n.Descendants() {
		if child.Type == html.TextNode && child.Parent.Data != "script" && child.Parent.Data != "style" {
			out.WriteString(child.Data + " ")
		}
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

func attribute(n *html.Node, name string) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val, true
		}
	}
	return "", false
}

func value(n *html.Node, name string) string {
	text, _ := attribute(n, name)
	return text
}

// forms returns the forms of a page in order.
func (p page) forms() []form {
	var all []form
	for n := range p.root.Descendants() {
		if n.Type == html.ElementNode && n.Data == "form" {
			all = append(all, p.read(n))
		}
	}
	return all
}

func (p page) read(n *html.Node) form {
	f := form{fields: url.Values{}, post: strings.EqualFold(value(n, "method"), "post"), action: p.at}
	if at, err := p.at.Parse(value(n, "action")); err == nil {
		f.action = at
	}
	for field := range n.Descendants() {
		name := value(field, "name")
		if field.Type != html.ElementNode || name == "" {
			continue
		}
		switch field.Data {
		case "input":
			f.addInput(field, name)
		case "button":
			if kind := value(field, "type"); kind == "" || kind == "submit" {
				f.buttons = append(f.buttons, choice{name, value(field, "value"), words(field)})
			}
		case "select":
			f.addSelect(field, name)
		case "textarea":
			f.fields.Add(name, words(field))
		}
	}
	return f
}

func (f *form) addInput(n *html.Node, name string) {
	given := value(n, "value")
	_, checked := attribute(n, "checked")
	switch value(n, "type") {
	case "submit":
		f.buttons = append(f.buttons, choice{name, given, given})
	case "button", "reset", "image", "file":
	case "radio":
		f.choices = append(f.choices, choice{name, given, beside(n)})
		if checked {
			f.fields.Set(name, given)
		}
	case "checkbox":
		if checked {
			f.fields.Add(name, given)
		}
	case "password":
		f.password = name
	case "email":
		f.login = name
	default:
		if name == "email" || name == "username" {
			f.login = name
		}
		f.fields.Add(name, given)
	}
}

func (f *form) addSelect(n *html.Node, name string) {
	for option := range n.Descendants() {
		if option.Type != html.ElementNode || option.Data != "option" {
			continue
		}
		given, has := attribute(option, "value")
		if !has {
			given = words(option)
		}
		if given != "" {
			f.choices = append(f.choices, choice{name, given, words(option)})
		}
		if _, selected := attribute(option, "selected"); selected {
			f.fields.Set(name, given)
		}
	}
}

// beside returns the text of the label around a field.
func beside(n *html.Node) string {
	for up := n.Parent; up != nil; up = up.Parent {
		if up.Type == html.ElementNode && up.Data == "label" {
			return words(up)
		}
	}
	return ""
}

// button returns the button with a value.
func (f form) button(value string) (choice, bool) {
	at := slices.IndexFunc(f.buttons, func(c choice) bool { return c.value == value })
	if at < 0 {
		return choice{}, false
	}
	return f.buttons[at], true
}

// open returns the choices of fields without a selected value.
func (f form) open() []choice {
	return slices.DeleteFunc(slices.Clone(f.choices), func(c choice) bool { return f.fields.Has(c.name) })
}
