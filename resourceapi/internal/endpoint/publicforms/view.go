package publicforms

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/page/brand"
	"github.com/almonerhq/almoner/shared/page/pagestyle"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

// trap is the hidden field that only bots fill in.
const trap = "website"

// prefix separates the names of the form's fields from the page's own.
const prefix = "a."

//go:embed assets/page.html
var pageHTML embed.FS

var pageTemplate = template.Must(template.ParseFS(pageHTML, "assets/page.html"))

// A view is the data of the page template.
type view struct {
	pageStyle
	Words  *engage.Language
	Brand  brand.Brand
	Accent template.CSS
	Title  string
	// Paragraphs of the form's own texts.
	Introduction, ThankYou []string
	Action                 string // path of the form's page; empty for no link
	Token                  string
	Alert                  string     // about the whole form
	Problem                string     // replaces the form
	Kept                   url.Values // answers that could not be stored; the page can send them again
	Sent                   string     // status of the submission, replaces the form
	Fresh                  bool       // the form is empty
	Over                   bool       // the answers were accepted: the browser needs to keep them no longer
	Reasons                []string
	Fields                 []*fieldView
	Wrong                  []*fieldView // fields with a Problem
	Trap                   string
	Static                 string // base path of the style sheet and script
}

func viewOf(form engage.Form, style pageStyle) *view {
	words := style.language(form.Lang)
	v := &view{
		pageStyle:    style,
		Words:        words,
		Title:        form.Title,
		Introduction: paragraphs(form.Introduction),
		ThankYou:     paragraphs(form.ThankYou),
		Action:       style.action(form.EmbedKey),
		Trap:         trap,
	}
	for i := range form.Fields {
		v.Fields = append(v.Fields, newFieldView(form.Fields, i, words))
	}
	return v
}

// paragraphs splits a text at empty lines. The style sheet keeps the other line breaks.
func paragraphs(text string) []string {
	var out []string
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if paragraph = strings.Trim(paragraph, "\n "); paragraph != "" {
			out = append(out, paragraph)
		}
	}
	return out
}

// render writes the page for the origins that may frame it. If it returns an error, nothing was written.
func (e *Endpoint) render(w http.ResponseWriter, status int, origins []string, v *view) error {
	v.Static, v.Brand = Root, e.Brand
	hash := ""
	colour, own := e.Brand.Colour()
	if v.accent != nil {
		colour, own = *v.accent, true
	}
	if own {
		accent := pagestyle.Accent(colour)
		v.Accent, hash = template.CSS(accent), pagestyle.Hash(accent) // consists of parsed colours, so it is safe
	}
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, v); err != nil {
		return &apierr.Error{Kind: apierr.Internal, Message: "The page could not be rendered.", Cause: err}
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", policy(origins, hash))
	w.Header().Set("Referrer-Policy", "same-origin") // the status page's URL contains a token
	w.WriteHeader(status)
	_, _ = page.WriteTo(w) // a client that disconnected is not an error
	return nil
}

// A pageStyle is the style that the website around the page requests in the query. Values that are not valid are
// ignored, since a wrong colour must not make the page fail.
type pageStyle struct {
	Framed bool
	Theme  string        // light or dark; empty to follow the system
	accent *brand.Colour // nil for the colour of the deployment
	lang   string        // empty for the language of the form
	// UnknownLang is the language that was requested or set, if there is none with this name.
	UnknownLang string
}

// styleOf reads the style from the query. By default, a page in a frame is light, as most websites are, and other pages
// follow the system.
func styleOf(r *http.Request) pageStyle {
	query := r.URL.Query()
	s := pageStyle{Framed: query.Get("frame") == "1"}
	switch theme := query.Get("theme"); theme {
	case "light", "dark":
		s.Theme = theme
	case "auto":
	default:
		if s.Framed {
			s.Theme = "light"
		}
	}
	if colour, err := brand.Parse(query.Get("accent")); err == nil {
		s.accent = &colour
	}
	if lang := query.Get("lang"); lang != "" {
		s.lang = engage.LanguageOfTag(lang)
		if s.lang == "" {
			s.UnknownLang = lang[:min(len(lang), longestTag)]
		}
	}
	return s
}

// longestTag is the greatest length of a BCP 47 tag that the page repeats, in bytes.
const longestTag = 35

// language returns the language that the website requests or else the language of the form.
func (p *pageStyle) language(ofForm string) *engage.Language {
	name := cmp.Or(p.lang, ofForm)
	if name != "" && !engage.KnownLanguage(name) { // the form is of a newer release
		p.UnknownLang = name
	}
	return engage.LanguageOf(name)
}

// query returns the query that requests this style.
func (p pageStyle) query() url.Values {
	query := url.Values{}
	if p.Framed {
		query.Set("frame", "1")
	}
	switch {
	case p.Theme == "" && p.Framed:
		query.Set("theme", "auto")
	case p.Theme == "dark", p.Theme == "light" && !p.Framed:
		query.Set("theme", p.Theme)
	}
	if p.accent != nil {
		query.Set("accent", p.accent.String()[1:])
	}
	if p.lang != "" {
		query.Set("lang", p.lang)
	}
	return query
}

// action returns the path of the form's page in this style.
func (p pageStyle) action(embedKey string) string {
	path := FormsPath + "/" + embedKey + "/embed"
	if query := p.query().Encode(); query != "" {
		return path + "?" + query
	}
	return path
}

// minFillTime is the shortest plausible time to fill in the page, with the browser's help.
const minFillTime = 2 * time.Second

// servePage handles GET: the form as a page or, once it was sent, the status of the submission.
func (e *Endpoint) servePage(w http.ResponseWriter, r *http.Request, form engage.FormState) error {
	if err := allowOrigin(w, r, form.Form); err != nil {
		return err
	}
	view := viewOf(form.Form, styleOf(r))
	if sent := r.URL.Query().Get("submission"); sent != "" {
		s, err := e.submission(r, sent)
		if err != nil || s.Form != form.ID {
			return errors.Join(engage.ErrNotFound, err)
		}
		view.Sent, view.Over = string(s.Status), true
		for _, reason := range s.Reasons {
			view.Reasons = append(view.Reasons, view.Words.Reason(reason))
		}
		return e.render(w, http.StatusOK, form.AllowedOrigins, view)
	}
	view.Token, view.Fresh = e.Tokens.ForSubmission(form.ID, e.Now()), true
	return e.render(w, http.StatusOK, form.AllowedOrigins, view)
}

// send handles POST of the page's own form, which needs no script. Invalid answers are shown again with the problem
// beside each; valid ones redirect to the status page, which can be reloaded without another submission. So do answers
// that this token has already: the page sends them again if it lost the response.
func (e *Endpoint) send(w http.ResponseWriter, r *http.Request, form engage.FormState) error {
	if r.Header.Get("Origin") != e.BaseURL { // not the page's own origin, so another site's form
		if err := allowOrigin(w, r, form.Form); err != nil {
			return err
		}
	}
	values, err := readForm(w, r)
	if err != nil {
		return err
	}
	style := styleOf(r)
	key, mistake := rest.ReadKey(r.Header, keyScope(form), []byte(values.Encode()))
	first, known, err := e.firstAnswer(r.Context(), key)
	if known {
		return redirect(w, style, form.EmbedKey, first)
	}
	if err := cmp.Or(mistake, err); err != nil {
		return err
	}
	if err := e.checkRate(r, form); err != nil {
		return err
	}
	form.Lang = style.language(form.Lang).Name // of the messages
	view := viewOf(form.Form, style)
	view.Token = values.Get("submissionToken")
	given := view.fill(form.Fields, values)
	token, err := e.Tokens.ReadSubmission(view.Token, form.ID, e.Now())
	if err != nil {
		view.Token = e.Tokens.ForSubmission(form.ID, e.Now())
		view.Alert = view.Words.TooOld
		return e.render(w, http.StatusBadRequest, form.AllowedOrigins, view)
	}
	submission, err := newSubmission(form.Form, token, given)
	if problems, bad := errors.AsType[rest.Problems](err); bad {
		view.mark(problems)
		return e.render(w, http.StatusBadRequest, form.AllowedOrigins, view)
	}
	if e.Now().Sub(token.IssuedAt) < minFillTime {
		view.Alert = view.Words.TooQuick
		return e.render(w, http.StatusBadRequest, form.AllowedOrigins, view)
	}
	submission.Trapped = values.Get(trap) != ""
	answer, err := e.accept(r.Context(), key, submission)
	if errors.Is(err, engage.ErrTokenUsed) {
		answer, err = e.acceptedBefore(r.Context(), submission)
	}
	if err != nil {
		return err
	}
	return redirect(w, style, form.EmbedKey, answer)
}

// redirect leads to the page of an accepted submission, whose status is at the answer's statusUrl.
func redirect(w http.ResponseWriter, style pageStyle, embedKey string, answer rest.Answer) error {
	var accepted struct{ ID, StatusURL string }
	if err := json.Unmarshal(answer.Body, &accepted); err != nil {
		return fmt.Errorf("read the answer to a submission: %w", err)
	}
	at, err := url.Parse(accepted.StatusURL)
	if err != nil {
		return fmt.Errorf("read the answer to a submission: %w", err)
	}
	query := style.query()
	query.Set("submission", accepted.ID)
	query.Set("token", at.Query().Get("token"))
	w.Header().Set("Location", FormsPath+"/"+embedKey+"/embed?"+query.Encode())
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// policy returns the page's Content-Security-Policy. It allows no external resources, only the inline style with the
// given hash, and only the given origins to frame the page.
func policy(origins []string, styleHash string) string {
	ancestors := "'none'"
	if len(origins) > 0 {
		ancestors = strings.Join(origins, " ")
	}
	styles := "'self'"
	if styleHash != "" {
		styles += " " + styleHash
	}
	return "default-src 'none'; style-src " + styles + "; script-src 'self'; connect-src 'self'; " +
		"img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors " + ancestors
}

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

// An errorPage is the page for a kind of error.
type errorPage struct {
	engage.PageText
	again bool // reopening the form may help
}

func errorPages(words engage.Pages) map[apierr.Kind]errorPage {
	return map[apierr.Kind]errorPage{
		apierr.NotFound:       {words.NotFound, false},
		apierr.Forbidden:      {words.Forbidden, false},
		apierr.Conflict:       {words.Conflict, true},
		apierr.RateLimited:    {words.RateLimited, false},
		apierr.TooLarge:       {words.TooLarge, false},
		apierr.Invalid:        {words.Invalid, true},
		apierr.NotProvisioned: {words.NotProvisioned, false},
		apierr.Unavailable:    {words.Unavailable, true},
		apierr.Internal:       {words.Internal, true},
	}
}

// maxKeptFields is how many fields are returned with the page: more than the longest form has.
const maxKeptFields = 500

// addAnswers adds the answers of the user to a page that reports an error which may pass. The allowed websites of the
// form are not known here, so only answers from the page's own form are returned.
func (e *Endpoint) addAnswers(w http.ResponseWriter, r *http.Request, view *view, kept engage.PageText) {
	if r.Method != http.MethodPost {
		if r.URL.Query().Has("submission") { // the answers were accepted before
			view.Title, view.Problem = view.Words.Pages.StatusUnknown.Title, view.Words.Pages.StatusUnknown.Text
			view.Action, view.Over = "", true
		}
		return
	}
	if origins := r.Header.Values("Origin"); len(origins) > 1 || len(origins) == 1 && origins[0] != e.BaseURL {
		return
	}
	if values, err := readForm(w, r); err == nil && len(values) > 0 && len(values) <= maxKeptFields {
		view.Title, view.Problem, view.Kept = kept.Title, kept.Text, values
		view.Action = view.action(r.PathValue("embedKey"))
	}
}

// refusePage writes the page of an error. ofForm is the language of the form, or "" for a form that is closed: a closed
// form must look like one that does not exist.
func (e *Endpoint) refusePage(w http.ResponseWriter, r *http.Request, origins []string, ofForm string, err error) {
	answer := apierr.Of(refusal(err))
	style := styleOf(r)
	words := style.language(ofForm)
	page, known := errorPages(words.Pages)[answer.Kind]
	if !known {
		e.Gate.Refuse(w, r, answer)
		return
	}
	view := &view{pageStyle: style, Words: words, Title: page.Title, Problem: page.Text}
	if page.again {
		view.Action = style.action(r.PathValue("embedKey"))
	}
	// The browser may have discarded the answers when the user goes back, since the form's page is not cached.
	switch answer.Kind {
	case apierr.RateLimited:
		e.addAnswers(w, r, view, words.Pages.UnsentRateLimited)
	case apierr.Unavailable:
		e.addAnswers(w, r, view, words.Pages.UnsentUnavailable)
	case apierr.Internal:
		e.addAnswers(w, r, view, words.Pages.UnsentInternal)
	}
	e.Gate.LogServerError(r, answer)
	answer.SayWhen(w.Header())
	if err := e.render(w, answer.Status(), origins, view); err != nil {
		e.Gate.Refuse(w, r, err)
	}
}
