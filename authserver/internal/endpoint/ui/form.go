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
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	err := r.ParseForm()
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		p.TooLarge(w, r)
		return nil, false
	}
	for _, values := range r.PostForm {
		if len(values) > 1 {
			err = errors.New("a field occurs twice")
		}
	}
	if err != nil {
		p.ShowError(w, r, &Message{
			Status:  http.StatusBadRequest,
			Heading: "The form is not valid",
			Text:    "The submitted form cannot be read. Nothing was changed.",
			Next:    "Go back and try again.",
		})
		return nil, false
	}
	return r.PostForm, true
}
