package doctor

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/PuerkitoBio/goquery"
	"golang.org/x/net/html"
)

// maxPages is the maximum number of pages between the request and the callback.
const maxPages = 10

// A browser is the client's side of the authorization server's pages, without scripts.
type browser struct {
	run        *run
	origin     string // of the pages; nothing is sent to another origin
	signedIn   bool
	approved   bool
	chose      bool
	restricted bool // a page has form-action
}

// consent signs in, chooses a workspace if the page offers a choice, and approves. It returns the address of
// the callback.
func (r *run) consent(ctx context.Context) string {
	page, err := url.Parse(r.server.text("authorization_endpoint"))
	if err != nil {
		panic(errStop)
	}
	// D3: the operator of the named server also receives the password.
	issuer, err := url.Parse(r.server.text("issuer"))
	if err != nil || origin(issuer) != origin(r.typed) || (page.Scheme != "https" && !isLoopback(page.Hostname())) {
		r.stop("password_not_sent", nil, "the sign-in page is at "+origin(page))
	}
	b := &browser{run: r, origin: origin(page)}
	resp := r.send(ctx, pageRequest(r.attempt.address, "as a browser", true))
	for range maxPages {
		next, callback := b.next(resp)
		if callback != "" {
			return callback
		}
		resp = r.send(ctx, next)
	}
	r.stop("endless_pages", resp)
	return ""
}

// pageRequest makes a request for a page, as a browser does.
func pageRequest(address, note string, cookies bool) request {
	return request{
		method:  http.MethodGet,
		url:     address,
		note:    note,
		timeout: callTimeout,
		cookies: cookies,
		header:  map[string]string{"Accept": "text/html"},
	}
}

// next decides how to continue after a response: with the next request, or with the callback's address.
func (b *browser) next(resp *response) (next request, callback string) {
	if resp.redirects() {
		return b.follow(resp)
	}
	page, err := readPage(resp)
	if err != nil || resp.status >= 500 {
		b.run.stop("page_fails", resp, messageOf(resp))
	}
	forms := slices.DeleteFunc(formsOf(page), func(f form) bool { return origin(f.action) != b.origin })
	for _, f := range forms {
		if strings.HasSuffix(f.action.Path, "/logout") && f.post {
			b.run.signOut = &f
		}
	}
	for _, f := range forms {
		switch {
		case resp.status != http.StatusOK:
		case f.post && f.password != "" && f.login != "" && !b.signedIn:
			b.checkFormAction(resp)
			return b.signIn(f), ""
		case f.post && slices.ContainsFunc(f.buttons, isApprove) && !b.approved:
			b.checkFormAction(resp)
			return b.approve(resp, f), ""
		case len(f.open()) > 0 && !b.chose:
			b.checkFormAction(resp)
			return b.choose(f), ""
		}
	}
	code, refused := "page_not_understood", resp.status != http.StatusOK
	switch {
	case b.signedIn && (asksPassword(formsOf(page)) || (refused && b.run.signOut == nil)):
		code = "sign_in_failed"
	case b.signedIn && refused:
		code = "consent_refused"
	}
	b.run.stop(code, resp, messageOf(resp))
	return request{}, ""
}

func (b *browser) follow(resp *response) (next request, callback string) {
	location := resp.header.Get("Location")
	if withoutQuery(location) == withoutQuery(b.run.redirect) {
		if b.approved {
			b.checkReturn(resp)
		}
		return request{}, location
	}
	at, err := url.Parse(resp.request.url)
	if err == nil {
		at, err = at.Parse(location)
	}
	if err != nil || origin(at) != b.origin {
		b.run.stop("led_elsewhere", resp)
	}
	return pageRequest(at.String(), "as a browser", true), ""
}

// checkReturn expects a status after which the browser uses GET: with 307 it would send the consent page's
// form to the client.
func (b *browser) checkReturn(resp *response) {
	repeats := resp.status == http.StatusTemporaryRedirect || resp.status == http.StatusPermanentRedirect
	b.run.findFirst(resp, []check{
		{resp.status == http.StatusFound || resp.status == http.StatusSeeOther, "approval_redirects", ""},
		{repeats, "approval_307", ""},
		{true, "approval_301", ""},
	})
}

// checkFormAction expects a page without form-action: Chromium applies it to every redirect after the form was sent,
// also to those of the client (CSP level 3, section 6.4.1), and no source covers the client's own schemes.
func (b *browser) checkFormAction(resp *response) {
	for _, policy := range resp.header.Values("Content-Security-Policy") {
		for directive := range strings.FieldsFuncSeq(policy, func(c rune) bool { return c == ';' || c == ',' }) {
			if words := strings.Fields(directive); len(words) > 0 && strings.EqualFold(words[0], "form-action") {
				b.restricted = true
				b.run.find("form_action", resp, quote(strings.Join(words, " ")))
				return
			}
		}
	}
}

func (b *browser) submit(f form, note string) request {
	if !f.post {
		address := *f.action
		address.RawQuery = f.fields.Encode()
		return pageRequest(address.String(), note, true)
	}
	req := formRequest(f.action.String(), note, f.fields, callTimeout)
	req.cookies = true
	req.header["Accept"], req.header["Origin"], req.header["Sec-Fetch-Site"] = "text/html", b.origin, "same-origin"
	return req
}

func (b *browser) signIn(f form) request {
	f.fields.Set(f.login, b.run.Email)
	f.fields.Set(f.password, b.run.Password.Reveal())
	b.signedIn = true
	return b.submit(f, "sign-in as "+b.run.Email)
}

func (b *browser) approve(resp *response, f form) request {
	if !b.restricted {
		b.run.find("form_action_ok", resp)
	}
	if len(f.open()) > 0 {
		b.pick(f)
	}
	f.press(isApprove)
	b.approved = true
	return b.submit(f, "approve")
}

func (b *browser) choose(f form) request {
	b.pick(f)
	f.press(func(button choice) bool { return button.value != "deny" && button.value != "cancel" })
	b.chose = true
	return b.submit(f, "the workspace chosen")
}

// pick selects the choice that the user named: by its value, by its label, or by an unambiguous prefix of its
// label.
func (b *browser) pick(f form) {
	offered, wanted := f.open(), b.run.Workspace
	for _, fits := range []func(choice) bool{
		func(c choice) bool { return c.value == wanted },
		func(c choice) bool { return strings.EqualFold(c.label, wanted) },
		func(c choice) bool { return strings.HasPrefix(c.label, wanted+" ") },
		func(c choice) bool { return strings.HasPrefix(c.label, wanted) },
	} {
		fitting := slices.DeleteFunc(slices.Clone(offered), func(c choice) bool { return !fits(c) })
		if wanted != "" && len(fitting) == 1 {
			f.fields.Set(fitting[0].name, fitting[0].value)
			return
		}
	}
	labels := make([]string, len(offered))
	for i, c := range offered {
		labels[i] = quote(c.label)
	}
	b.run.stop("workspace_not_chosen", nil, "offered: "+strings.Join(labels, ", "))
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

func readPage(resp *response) (*goquery.Document, error) {
	page, err := goquery.NewDocumentFromReader(bytes.NewReader(resp.body))
	if err == nil {
		page.Url, err = url.Parse(resp.request.url)
	}
	return page, err
}

// messageOf returns the message of a page: its alert, its heading with the following paragraph, or its title.
func messageOf(resp *response) string {
	page, err := readPage(resp)
	if err != nil {
		return ""
	}
	for _, alert := range page.Find(`[role="alert"]`).EachIter() {
		if text := visibleText(alert); text != "" { // a script fills an empty one
			return "the page says " + quote(text)
		}
	}
	heading := page.Find("h1").First()
	if heading.Length() == 0 {
		heading = page.Find("title").First()
	}
	if heading.Length() == 0 {
		return ""
	}
	text := visibleText(heading)
	if next := visibleText(heading.Next().Filter("p, div")); next != "" {
		text += ": " + next
	}
	return "the page says " + quote(text)
}

// visibleText returns the text of an element without scripts and styles, with a space between two elements.
func visibleText(s *goquery.Selection) string {
	var out strings.Builder
	for _, n := range s.Nodes {
		for child := range n.Descendants() {
			if child.Type == html.TextNode && child.Parent.Data != "script" && child.Parent.Data != "style" {
				out.WriteString(child.Data + " ")
			}
		}
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

// formsOf returns the forms of a page in order.
func formsOf(page *goquery.Document) []form {
	var all []form
	for _, s := range page.Find("form").EachIter() {
		f := form{fields: url.Values{}, post: strings.EqualFold(s.AttrOr("method", ""), "post"), action: page.Url}
		if action, err := page.Url.Parse(s.AttrOr("action", "")); err == nil {
			f.action = action
		}
		for _, field := range s.Find(`[name]:not([name=""])`).EachIter() {
			f.add(field, field.AttrOr("name", ""), field.AttrOr("value", ""))
		}
		all = append(all, f)
	}
	return all
}

func (f *form) add(field *goquery.Selection, name, value string) {
	kind := field.AttrOr("type", "")
	_, checked := field.Attr("checked")
	switch element := goquery.NodeName(field); {
	case element == "button" && (kind == "" || kind == "submit"):
		f.buttons = append(f.buttons, choice{name, value, visibleText(field)})
	case element == "select":
		f.addOptions(field, name)
	case element == "textarea":
		f.fields.Add(name, visibleText(field))
	case element != "input" || slices.Contains([]string{"button", "reset", "image", "file"}, kind):
	case kind == "submit":
		f.buttons = append(f.buttons, choice{name, value, value})
	case kind == "radio":
		f.choices = append(f.choices, choice{name, value, visibleText(field.Closest("label"))})
		if checked {
			f.fields.Set(name, value)
		}
	case kind == "checkbox":
		if checked {
			f.fields.Add(name, value)
		}
	case kind == "password":
		f.password = name
	case kind == "email":
		f.login = name
	default:
		if name == "email" || name == "username" {
			f.login = name
		}
		f.fields.Add(name, value)
	}
}

func (f *form) addOptions(list *goquery.Selection, name string) {
	for _, option := range list.Find("option").EachIter() {
		label := visibleText(option)
		value := option.AttrOr("value", label)
		if value != "" {
			f.choices = append(f.choices, choice{name, value, label})
		}
		if _, selected := option.Attr("selected"); selected {
			f.fields.Set(name, value)
		}
	}
}

func asksPassword(forms []form) bool {
	return slices.ContainsFunc(forms, func(f form) bool { return f.password != "" })
}

func isApprove(button choice) bool { return button.value == "approve" }

// press presses the first button of a kind, if there is one.
func (f form) press(is func(choice) bool) {
	if at := slices.IndexFunc(f.buttons, is); at >= 0 {
		f.fields.Set(f.buttons[at].name, f.buttons[at].value)
	}
}

// open returns the choices of fields without a selected value.
func (f form) open() []choice {
	return slices.DeleteFunc(slices.Clone(f.choices), func(c choice) bool { return f.fields.Has(c.name) })
}
