package ui

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
)

// ShowError writes a page that explains what is wrong and what to do next.
func (p *Pages) ShowError(w http.ResponseWriter, r *http.Request, m *Message) {
	m.Title = cmp.Or(m.Title, m.Heading)
	if slices.ContainsFunc(m.Asks, func(a Ask) bool { return a.None }) {
		m.Next = "" // which says that an administrator can help
	}
	p.Show(w, r, m.Status, m)
}

//go:embed messages.json
var messagesJSON []byte

var messages = Words[Message]("messages.json", messagesJSON)

// Words returns a function that returns the table of words of an embedded file. The file is read once.
func Words[Entry any](file string, content []byte) func() map[string]Entry {
	return sync.OnceValue(func() (all map[string]Entry) {
		if err := json.Unmarshal(content, &all); err != nil {
			panic(file + ": " + err.Error())
		}
		return all
	})
}

// MessageOf returns the message of messages.json with this name, with links after its own. about replaces {} in its
// heading and text.
func MessageOf(name, about string, links ...Link) *Message {
	m := messages()[name]
	m.Heading, m.Text = strings.ReplaceAll(m.Heading, "{}", about), strings.ReplaceAll(m.Text, "{}", about)
	m.Links = slices.Concat(m.Links, links)
	return &m
}

// NotAllowed writes a 405. The router has set Allow.
func (p *Pages) NotAllowed(w http.ResponseWriter, r *http.Request) {
	p.ShowError(w, r, MessageOf("request not supported", ""))
}

// NoPage returns a handler for a URL that only takes a form: a 405 for other methods, with a link to the page that the
// form is on. Users get here when they reload the response to a form.
func (p *Pages) NoPage(back string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.ShowError(w, r, MessageOf("no page here", "", Link{Href: back, Text: "Open the page with the form"}))
	})
}

// Unavailable writes a 503 in a frame, with a button that sends the request again.
func (p *Pages) Unavailable(w http.ResponseWriter, r *http.Request, frame Frame) {
	w.Header().Set("Retry-After", "5")
	m := MessageOf("unavailable", "")
	m.Frame, m.Retry = frame, retry(w, r)
	m.Script = m.Script || m.Retry != nil && len(m.Retry.Asked) > 0 // a typed password can be shown
	p.ShowError(w, r, m)
}

// Internal writes a 500.
func (p *Pages) Internal(w http.ResponseWriter, r *http.Request) {
	p.ShowError(w, r, MessageOf("internal", ""))
}

// SameOrigin accepts forms from the server's own origin only and writes a 403 for others. A request without Origin and
// Sec-Fetch-Site does not come from a current browser, and is left to the checks of next.
func (p *Pages) SameOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.ShowError(w, r, MessageOf("foreign form", ""))
	}))
	return protection.Handler(next)
}

// maxReturn bounds the path to which the pages that set up a second factor return: it becomes part of their URLs. For a
// longer request, these pages open in a new tab, and the first page has a link that continues the request.
const maxReturn = 1500

// SecondFactorNeeded writes the page that leads to a second factor, because the workspace requires one. has reports
// whether the user has one and only needs to use it. back is the local path of the request, or "". others are links to
// the same page of other workspaces.
func (p *Pages) SecondFactorNeeded(
	w http.ResponseWriter, r *http.Request, frame Frame, workspace string, has bool, back string, others ...Link,
) {
	query := ""
	if back = LocalPath(back, ""); back != "" && len(back) <= maxReturn {
		query = "?return=" + url.QueryEscape(back)
	}
	m := MessageOf("second factor to use", workspace)
	if has {
		m.Links = append(m.Links, Link{Href: "/login/again" + query, Text: "Confirm your identity"})
	} else {
		m = MessageOf("second factor to set up", workspace)
		if p.offer.Passkeys {
			m.Links = append(m.Links, Link{Href: "/settings/passkeys" + query, Text: "Add a passkey"})
		}
		app := Link{Href: "/settings/security/authenticator" + query, Text: "Set up an authenticator app"}
		m.Links = append(m.Links, app)
	}
	m.Frame = frame
	switch {
	case back == "":
		m.Next = "Do this now, and then open the page or the application again."
	case query == "":
		m.Next = "Do this now, in the new tab. Then come back to this page and continue."
		for i := range m.Links {
			m.Links[i].NewTab = true
		}
		m.Links = append(m.Links, Link{Href: back, Text: "Continue"})
	}
	m.Links = append(m.Links, others...)
	p.ShowError(w, r, m)
}

// Unproven returns the page for a user whose address was never proven to be the user's (useraccount.Proof). text says
// what the user cannot do. mails tells whether the deployment sends mail.
func Unproven(text string, mails bool) *Message {
	if !mails {
		return MessageOf("address not proven, without mail", text)
	}
	return MessageOf("address not proven", text)
}

const maxForm = 64 << 10

// ReadForm reads the body of a form in which each field occurs at most once. Otherwise it writes a 413 or 400 and
// returns false.
func (p *Pages) ReadForm(w http.ResponseWriter, r *http.Request) (url.Values, bool) {
	return p.ReadFormOr(w, r, func() {
		p.ShowError(w, r, MessageOf("form not valid", ""))
	})
}

// ReadFormOr is like ReadForm, but leaves the 400 to refuse.
func (p *Pages) ReadFormOr(w http.ResponseWriter, r *http.Request, refuse func()) (url.Values, bool) {
	if !p.ParseForm(w, r, refuse) {
		return nil, false
	}
	for _, values := range r.PostForm {
		if len(values) > 1 {
			refuse()
			return nil, false
		}
	}
	return r.PostForm, true
}

// ParseForm reads the body of a form. If it cannot, it writes a 413 or calls refuse, and returns false.
func (p *Pages) ParseForm(w http.ResponseWriter, r *http.Request, refuse func()) bool {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	err := r.ParseForm()
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		p.ShowError(w, r, MessageOf("form too large", ""))
	} else if err != nil {
		refuse()
	}
	return err == nil
}

// Redirect writes a 303 to a local path, or to the address of another site.
func Redirect(w http.ResponseWriter, address string) {
	w.Header().Set("Location", address)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusSeeOther)
}

// Problems are the errors of a form, in the order of its fields. The head of the page lists them with links to the
// fields, and each is also at its field.
type Problems []Problem

// A Problem is the error of one field of a form.
type Problem struct {
	Field string // its name in the form, or the id of its element if several forms of the page have it
	At    string // its element id
	Label string // its name on the page
	Text  string
}

// Of returns the error of a field, or "".
func (p Problems) Of(field string) string {
	for _, one := range p {
		if one.Field == field {
			return one.Text
		}
	}
	return ""
}

// First reports whether the first error belongs to the field, which then gets the focus.
func (p Problems) First(field string) bool { return len(p) > 0 && p[0].Field == field }

// A Retry repeats a request that could not be served: a link for a GET, and for a form of this site a form with the
// same fields.
type Retry struct {
	Path   string // local, with its query
	Form   bool
	Fields []RetryField // what was typed
	Asked  []RetryField // passwords, without their values: a page does not repeat them
}

// A RetryField is a field of a Retry.
type RetryField struct{ ID, Label, Name, Value string }

// secretFields are the labels of the fields that a page never repeats.
var secretFields = map[string]string{
	"password":     "Password",
	"new-password": "New password",
	"code":         "Code",
	"answer":       "", // of a passkey: a new one is needed
	"credential":   "",
}

// retry returns how to repeat the request, or nil if the user must go back. A form of another site is not repeated: the
// button would send it as one of this site.
func retry(w http.ResponseWriter, r *http.Request) *Retry {
	path := r.URL.RequestURI()
	if LocalPath(path, "") == "" {
		return nil
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		if query := r.URL.Query(); query.Has("token") || query.Has("code") { // no page repeats a secret
			return nil
		}
		return &Retry{Path: path}
	}
	named := r.Header.Get("Sec-Fetch-Site") != "" || r.Header.Get("Origin") != ""
	if !named || http.NewCrossOriginProtection().Check(r) != nil {
		return nil
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if r.ParseForm() != nil {
		return nil
	}
	again := &Retry{Path: path, Form: true}
	for _, name := range slices.Sorted(maps.Keys(r.PostForm)) {
		label, secret := secretFields[name]
		switch {
		case secret && label == "":
			return nil
		case secret:
			again.Asked = append(again.Asked, RetryField{ID: "again-" + name, Label: label, Name: name})
		default:
			for _, value := range r.PostForm[name] {
				again.Fields = append(again.Fields, RetryField{Name: name, Value: value})
			}
		}
	}
	return again
}

const maxLocalPath = 16 << 10

// LocalPath returns text if it is a path on this host, with or without a query, and otherwise the other path. Text that
// a browser could take for another host is not a local path: two slashes, backslashes, control characters.
func LocalPath(text, otherwise string) string {
	if len(text) == 0 || len(text) > maxLocalPath || text[0] != '/' {
		return otherwise
	}
	if len(text) > 1 && text[1] == '/' {
		return otherwise
	}
	for i := range len(text) {
		if text[i] <= ' ' || text[i] >= 0x7f || text[i] == '\\' {
			return otherwise
		}
	}
	parsed, err := url.Parse(text)
	if err != nil || parsed.IsAbs() || parsed.Host != "" {
		return otherwise
	}
	return text
}

// leadsOutside reports whether the local path may lead to another site: an authorization request ends at its client,
// and a sign-in with the deployment's provider begins there. A path can carry the one that follows it.
func leadsOutside(local string) bool {
	at, err := url.Parse(local)
	if err != nil {
		return true
	}
	switch place := path.Clean(at.Path); {
	case strings.HasPrefix(place, "/oauth/"), strings.HasSuffix(place, "/upstream"):
		return true
	}
	next := at.Query().Get("return")
	return next != "" && leadsOutside(next)
}

// leadsTo returns the local path that the form leads to, or "" without a form.
func (r *Retry) leadsTo() string {
	if r == nil || !r.Form {
		return ""
	}
	for _, field := range r.Fields {
		if field.Name == "return" {
			return field.Value
		}
	}
	return r.Path
}
