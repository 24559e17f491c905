package ui

import (
	"errors"
	"net/http"
	"net/url"
)

const maxForm = 64 << 10

// ReadForm reads the body of a form in which each field occurs at most once. Otherwise it writes a 413 or 400 and
// returns false.
func (p *Pages) ReadForm(w http.ResponseWriter, r *http.Request) (url.Values, bool) {
	return p.ReadFormOr(w, r, func() {
		p.ShowError(w, r, &Message{
			Status:  http.StatusBadRequest,
			Heading: "The form is not valid",
			Text:    "The submitted form cannot be read. Nothing was changed.",
			Next:    "Go back and try again.",
		})
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
	return Problem{
		Field: field,
		At:    at,
		Label: label,
		Text:  text,
	}
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

// Refuse makes the page say that a form was refused, and why.
func (f *Frame) Refuse(what string, problems ...Problem) { f.Problem, f.Problems = what, problems }
