package publicforms

import (
	"net/http"

	"github.com/almonerhq/almoner/shared/apierr"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

// page serves an open form. Errors become pages, since a person reads them in a frame.
func (e *Endpoint) page(serve func(http.ResponseWriter, *http.Request, engage.FormState) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origins := []string{"*"} // any site may frame a page that shows only what was sent to it
		form, err := e.find(r)
		if err == nil {
			err = checkOpen(form)
		}
		if err == nil {
			origins = form.AllowedOrigins
			err = serve(w, r, form)
		}
		if err != nil {
			e.refusePage(w, r, origins, err)
		}
	})
}

// An errorPage is the text of a page that replaces the form.
type errorPage struct {
	title, text string
	again       bool // whether reopening the form may help
}

// errorPages are the texts by kind of error.
var errorPages = map[apierr.Kind]errorPage{
	apierr.NotFound: {
		"This form is not available",
		"It may have been closed, or the address may be incomplete.",
		false,
	},
	apierr.Forbidden: {
		"This form cannot be sent from here",
		"The form does not allow the website that shows it. Please open the form directly and try again.",
		false,
	},
	apierr.Conflict: {
		"You already sent this form",
		"We received your answers the first time. Open the form again to send new answers.",
		true,
	},
	apierr.RateLimited: {
		"Too many forms were sent",
		"There were too many from your network. Please go back, wait a minute and send your answers again.",
		false,
	},
	apierr.TooLarge: {"Your answers are too long", "Please go back and shorten them.", false},
	apierr.Invalid:  {"The form could not be read", "Please open it again.", true},
	apierr.NotProvisioned: {
		"This form is not set up yet",
		"Trying again does not help. Please contact the organisation that published the form.",
		false,
	},
	apierr.Unavailable: {"We cannot show this form at the moment", "Please try again in a few seconds.", true},
	apierr.Internal:    {"Something went wrong on our side", "The error was recorded. Please try again.", true},
}

// unsent are the texts, by kind of error, for a user whose answers are returned with the page to be sent again. The
// browser may have discarded them when the user goes back, since the form's page is not cached.
var unsent = map[apierr.Kind]errorPage{
	apierr.Unavailable: {
		"We cannot accept your answers at the moment",
		"Your answers are still on this page. Please wait a few seconds, then send them again.",
		true,
	},
	apierr.Internal: {
		"Something went wrong on our side",
		"The error was recorded. Your answers are still on this page. Please send them again.",
		true,
	},
}

// maxKeptFields is how many fields are returned with the page: more than the longest form has.
const maxKeptFields = 500

// addAnswers adds the answers of the user to a page that reports a server error. The allowed websites of the form are
// not known here, so only answers from the page's own form are returned.
func (e *Endpoint) addAnswers(w http.ResponseWriter, r *http.Request, view *view, kept errorPage) {
	if r.Method != http.MethodPost {
		if r.URL.Query().Has("submission") { // the answers were accepted before
			view.Title, view.Problem = "We received your answers", "We cannot show their status at the moment. You "+
				"do not need to send them again."
			view.Action = ""
		}
		return
	}
	if origins := r.Header.Values("Origin"); len(origins) > 1 || len(origins) == 1 && origins[0] != e.BaseURL {
		return
	}
	if values, err := readForm(w, r); err == nil && len(values) > 0 && len(values) <= maxKeptFields {
		view.Title, view.Problem, view.Kept = kept.title, kept.text, values
	}
}

func (e *Endpoint) refusePage(w http.ResponseWriter, r *http.Request, origins []string, err error) {
	answer := apierr.Of(refusal(err))
	words, known := errorPages[answer.Kind]
	if !known {
		e.Refuse(w, r, answer)
		return
	}
	view := &view{Framed: framed(r)}
	view.Title, view.Problem = words.title, words.text
	if words.again {
		view.Action = action(r.PathValue("embedKey"), view.Framed)
	}
	if ours := answer.Kind == apierr.Unavailable || answer.Kind == apierr.Internal; ours {
		e.addAnswers(w, r, view, unsent[answer.Kind])
	}
	e.LogServerError(r, answer)
	answer.SayWhen(w.Header())
	if err := e.render(w, answer.Status(), origins, view); err != nil {
		e.Refuse(w, r, err)
	}
}
