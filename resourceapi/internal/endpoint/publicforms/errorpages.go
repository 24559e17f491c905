package publicforms

import (
	"net/http"

	"github.com/almonerhq/almoner/shared/apierr"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/formtext"
)

// page serves an open form. Errors become pages, since a person reads them in a frame.
func (e *Endpoint) page(serve func(http.ResponseWriter, *http.Request, engage.FormState) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origins := []string{"*"} // any site may frame a page that shows only what was sent to it
		lang := ""
		form, err := e.find(r)
		if err == nil {
			err = checkOpen(form)
		}
		if err == nil {
			origins, lang = form.AllowedOrigins, form.Lang
			err = serve(w, r, form)
		}
		if err != nil {
			e.refusePage(w, r, origins, lang, err)
		}
	})
}

// errorPage returns the text of the page for a kind of error, and whether reopening the form may help.
func errorPage(words formtext.Pages, kind apierr.Kind) (text formtext.PageText, again, known bool) {
	switch kind {
	case apierr.NotFound:
		return words.NotFound, false, true
	case apierr.Forbidden:
		return words.Forbidden, false, true
	case apierr.Conflict:
		return words.Conflict, true, true
	case apierr.RateLimited:
		return words.RateLimited, false, true
	case apierr.TooLarge:
		return words.TooLarge, false, true
	case apierr.Invalid:
		return words.Invalid, true, true
	case apierr.NotProvisioned:
		return words.NotProvisioned, false, true
	case apierr.Unavailable:
		return words.Unavailable, true, true
	case apierr.Internal:
		return words.Internal, true, true
	}
	return formtext.PageText{}, false, false
}

// maxKeptFields is how many fields are returned with the page: more than the longest form has.
const maxKeptFields = 500

// addAnswers adds the answers of the user to a page that reports a server error. The allowed websites of the form are
// not known here, so only answers from the page's own form are returned.
func (e *Endpoint) addAnswers(w http.ResponseWriter, r *http.Request, view *view, kept formtext.PageText) {
	if r.Method != http.MethodPost {
		if r.URL.Query().Has("submission") { // the answers were accepted before
			view.Title, view.Problem = view.Words.Pages.StatusUnknown.Title, view.Words.Pages.StatusUnknown.Text
			view.Action = ""
		}
		return
	}
	if origins := r.Header.Values("Origin"); len(origins) > 1 || len(origins) == 1 && origins[0] != e.BaseURL {
		return
	}
	if values, err := readForm(w, r); err == nil && len(values) > 0 && len(values) <= maxKeptFields {
		view.Title, view.Problem, view.Kept = kept.Title, kept.Text, values
	}
}

// refusePage writes the page of an error. ofForm is the language of the form, or "" for a form that is closed: a closed
// form must look like one that does not exist.
func (e *Endpoint) refusePage(w http.ResponseWriter, r *http.Request, origins []string, ofForm string, err error) {
	answer := apierr.Of(refusal(err))
	style := styleOf(r)
	words := style.language(ofForm)
	text, again, known := errorPage(words.Pages, answer.Kind)
	if !known {
		e.Refuse(w, r, answer)
		return
	}
	view := &view{pageStyle: style, Words: words, Title: text.Title, Problem: text.Text}
	if again {
		view.Action = style.action(r.PathValue("embedKey"))
	}
	// The browser may have discarded the answers when the user goes back, since the form's page is not cached.
	switch answer.Kind {
	case apierr.Unavailable:
		e.addAnswers(w, r, view, words.Pages.UnsentUnavailable)
	case apierr.Internal:
		e.addAnswers(w, r, view, words.Pages.UnsentInternal)
	}
	e.LogServerError(r, answer)
	answer.SayWhen(w.Header())
	if err := e.render(w, answer.Status(), origins, view); err != nil {
		e.Refuse(w, r, err)
	}
}
