package publicforms

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/brand"
	"github.com/almonerhq/almoner/shared/spelling"

	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/ui"
	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/formtext"
	"github.com/almonerhq/almoner/resourceapi/internal/invalid"
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
	Words  *formtext.Language
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
	Reasons                []string
	Fields                 []*fieldView
	Wrong                  []*fieldView // fields with a Problem
	Trap                   string
	Static                 string // base path of the style sheet and script
}

// A fieldView is one question on the page.
type fieldView struct {
	engage.Field
	ID      string // id of the element
	Input   string // name of the input
	Value   string
	Chosen  []string
	Problem string
	Words   *formtext.Language
}

// Has reports whether the option was chosen.
func (f *fieldView) Has(option string) bool { return slices.Contains(f.Chosen, option) }

// OptionID returns the element id of one option.
func (f *fieldView) OptionID(i int) string {
	if i == 0 {
		return f.ID // target of the links in the list of problems
	}
	return f.ID + "-" + strconv.Itoa(i)
}

// Attributes returns the attributes of a plain input, which choose the keyboard and the autofill of the browser.
func (f *fieldView) Attributes() template.HTMLAttr {
	switch f.Type {
	case engage.Email:
		return `type="email" autocomplete="email" dir="ltr" inputmode="email" autocapitalize="none" spellcheck="false"`
	case engage.Phone:
		return `type="tel" autocomplete="tel" dir="ltr" inputmode="tel"`
	case engage.Number:
		return `type="text" dir="ltr" inputmode="decimal"` // with type=number browsers do not send invalid input
	case engage.Date:
		return `type="date" max="9999-12-31"`
	}
	if strings.EqualFold(f.Name, "name") {
		return `type="text" autocomplete="name" dir="auto"`
	}
	return `type="text" dir="auto"`
}

func viewOf(form engage.Form, style pageStyle) *view {
	v := &view{
		pageStyle:    style,
		Words:        style.language(form.Lang),
		Title:        form.Title,
		Introduction: paragraphs(form.Introduction),
		ThankYou:     paragraphs(form.ThankYou),
		Action:       style.action(form.EmbedKey),
		Trap:         trap,
	}
	for i, field := range form.Fields {
		v.Fields = append(v.Fields, &fieldView{
			Field: field,
			ID:    fmt.Sprintf("f%d", i),
			Input: prefix + field.Name,
			Words: v.Words,
		})
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

// PageTitle returns the title of the document.
func (v *view) PageTitle() string {
	if len(v.Wrong) == 0 {
		return v.Title
	}
	return fmt.Sprintf(v.Words.TitleToCorrect, v.Title)
}

// ToCorrect returns how many answers are to be corrected, in words.
func (v *view) ToCorrect() string {
	if len(v.Wrong) == 1 {
		return v.Words.CorrectOne
	}
	return fmt.Sprintf(v.Words.CorrectMany, len(v.Wrong))
}

// fill copies the sent values into the view and returns them as the answers that a script would have sent.
func (v *view) fill(fields []engage.Field, values url.Values) engage.RawAnswers {
	given := engage.RawAnswers{}
	for i, field := range fields {
		shown := v.Fields[i]
		sent := values[shown.Input]
		for j, text := range sent {
			if !utf8.ValidString(text) {
				sent[j] = strings.ToValidUTF8(text, "\uFFFD")
			}
		}
		var answer any
		switch {
		case field.Type == engage.Consent:
			shown.Chosen = sent
			answer = len(sent) > 0
		case field.Type == engage.Multiselect:
			shown.Chosen = sent
			answer = sent
		case len(sent) > 0:
			shown.Value, shown.Chosen = sent[0], sent
			answer = sent[0]
			if field.Type == engage.Number {
				answer = numberTyped(sent[0])
			}
		}
		given[field.Name], _ = json.Marshal(answer) // strings and booleans cannot fail
	}
	return given
}

// numberTyped parses a number as people type it: with spaces around it, a plus sign or leading zeros. Other text is
// returned unchanged, and the form refuses it.
func numberTyped(text string) any {
	text = strings.ReplaceAll(spelling.Digits(spelling.Pasted(text)), "\u2212", "-")
	if text == "" {
		return nil
	}
	if strings.Trim(text, "+-.0123456789") != "" {
		return text
	}
	whole, fraction, dotted := strings.Cut(strings.TrimPrefix(text, "+"), ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	if whole = strings.TrimLeft(whole, "0"); whole == "" {
		whole = "0"
	}
	if dotted && fraction != "" {
		whole += "." + fraction
	}
	if number := json.Number(sign + whole); json.Valid([]byte(number)) {
		return number
	}
	return text
}

// mark sets the problems of the fields.
func (v *view) mark(problems invalid.Fields) {
	for _, f := range v.Fields {
		if f.Problem = problems[f.Name]; f.Problem != "" {
			v.Wrong = append(v.Wrong, f)
		}
	}
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
		accent := ui.Accent(colour)
		v.Accent, hash = template.CSS(accent), ui.Hash(accent) // consists of parsed colours, so it is safe
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
