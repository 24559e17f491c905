package ui

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
)

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
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	err := r.ParseForm()
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		p.TooLarge(w, r)
		return nil, false
	}
	twice := false
	for _, values := range r.PostForm {
		twice = twice || len(values) > 1
	}
	if err != nil || twice {
		refuse()
		return nil, false
	}
	return r.PostForm, true
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
	Field string // its name in the form
	At    string // its element id
	Label string // its name on the page
	Text  string
}

// ProblemAt returns the error of a field with a name in the form, an element id and a label.
func ProblemAt(field, at, label, text string) Problem {
	return Problem{field, at, label, text}
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

// maxRetry limits the fields of a Retry.
const maxRetry = 64 << 10

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
	r.Body = http.MaxBytesReader(w, r.Body, maxRetry)
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
