package publicforms

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

// A fieldView is one question on the page.
type fieldView struct {
	engage.Field
	ID      string // id of the element; of options, the first has it, since the list of problems links to it
	Input   string // name of the input
	Value   string
	Chosen  []string
	Problem string
	Words   *engage.Language
	// AskInput and AskValue are the name and the value of the input that AskIf is about. Hint says when to answer.
	AskInput, AskValue, Hint string
}

func newFieldView(fields []engage.Field, i int, words *engage.Language) *fieldView {
	f := &fieldView{
		Field: fields[i],
		ID:    fmt.Sprintf("f%d", i),
		Input: prefix + fields[i].Name,
		Words: words,
	}
	if f.AskIf == nil {
		return f
	}
	f.AskInput, f.AskValue, f.Hint = prefix+f.AskIf.Field, agreed, words.AskIfAgreed
	at := slices.IndexFunc(fields[:i], func(earlier engage.Field) bool { return earlier.Name == f.AskIf.Field })
	if option, isOption := f.AskIf.Equals.(string); isOption && at >= 0 {
		f.AskValue, f.Hint = option, fmt.Sprintf(words.AskIf, words.Isolate(fields[at].Label), words.Isolate(option))
	}
	return f
}

// agreed is the value of the input of a consent.
const agreed = "yes"

// Has reports whether the option was chosen.
func (f *fieldView) Has(option string) bool { return slices.Contains(f.Chosen, option) }

// IsName reports whether the question is about the name of the person.
func (f *fieldView) IsName() bool { return strings.EqualFold(f.Name, "name") }

// fill copies the sent values into the view and returns them as the answers that a script would have sent.
func (v *view) fill(fields []engage.Field, values url.Values) rest.Object {
	given := rest.Object{}
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
				answer = numberTyped(sent[0], v.Words)
			}
		}
		given[field.Name], _ = json.Marshal(answer) // strings and booleans cannot fail
	}
	return given
}

// mark sets the problems of the fields.
func (v *view) mark(problems rest.Problems) {
	for _, f := range v.Fields {
		if f.Problem = problems[f.Name]; f.Problem != "" {
			v.Wrong = append(v.Wrong, f)
		}
	}
}

// numberTyped parses a number as people type it in the language: with spaces around it, a plus sign or leading zeros.
// Other text is returned unchanged, and the form refuses it. So it does with a point before three digits where the
// decimal separator is a comma, because the point may separate thousands.
func numberTyped(typed string, words *engage.Language) any {
	text := strings.NewReplacer("\u2212", "-", "\u066b", ".").Replace(spelling.Digits(spelling.Pasted(typed)))
	if words.Decimal == "," {
		if whole, fraction, _ := strings.Cut(text, "."); len(fraction) == 3 && strings.Trim(whole, "+-0") != "" {
			return typed
		}
		text = strings.Replace(text, ",", ".", 1)
	}
	if text == "" {
		return nil
	}
	if strings.Trim(text, "+-.0123456789") != "" {
		return typed
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
	return typed
}
