package engage

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/almonerhq/almoner/shared/rest"
)

// readOne reads one answer to a field. It returns what is stored and the message of the refusal.
func readOne(t *testing.T, field Field, raw string) (stored any, refusal string) {
	t.Helper()
	field.Name = "field"
	given := rest.Object{}
	if raw != "" {
		given["field"] = json.RawMessage(raw)
	}
	answers, _, err := Form{Fields: []Field{field}}.Read(given, english)
	if err == nil {
		return answers["field"], ""
	}
	problems, ok := errors.AsType[rest.Problems](err)
	if !ok || len(problems) != 1 || problems["field"] == "" {
		t.Errorf("%s %s: %v", field.Type, raw, err)
	}
	return answers["field"], problems["field"]
}

// An answerCase is an answer to a field of a type, what is stored of it, and else why it is refused.
type answerCase struct {
	kind    Type
	raw     string
	stored  any
	refusal string
}

func answersByType() []answerCase {
	number := func(text string) any { return json.Number(text) }
	times := strings.Repeat
	longest := times("a", 254-len("@a.example")) + "@a.example"
	return []answerCase{
		{Text, `"  Ada "`, "Ada", ""},
		{Text, `"` + times("é", 200) + `"`, times("é", 200), ""},
		{Text, `"` + times("é", 201) + `"`, nil, "at most 200"},
		{Text, `"a\nb"`, nil, "control"},
		{Text, `1`, nil, "Must be a string."},
		{Textarea, `"a\r\nb\tc"`, "a\nb\tc", ""},
		{Textarea, `"` + times("é", 5000) + `"`, times("é", 5000), ""},
		{Textarea, `"` + times("é", 5001) + `"`, nil, "at most 5000"},
		{Textarea, `"a\u0007b"`, nil, "control"},
		{Email, `"Ada@Example.org"`, "Ada@Example.org", ""},
		{Email, `" ada@example.org\u200b"`, "ada@example.org", ""},
		{Email, `"ada@xn--bcher-kva.example"`, "ada@bücher.example", ""},
		{Email, `"ada@bücher.example"`, "ada@bücher.example", ""},
		{Email, `"ÉVA@example.org"`, "éva@example.org", ""},
		{Email, `"` + longest + `"`, longest, ""},
		{Email, `"a` + longest + `"`, nil, "at most 254"},
		{Email, `"ada"`, nil, "email"},
		{Phone, `"+44 20 7946 0958"`, "+44 20 7946 0958", ""},
		{Phone, `"(020) 7946-0958 ext. 12"`, "(020) 7946-0958 ext. 12", ""},
		{Phone, `"02079460958x1234567"`, "02079460958x1234567", ""},
		{Phone, `"02079460958x12345678"`, nil, "phone"},
		{Phone, `"０２０７９"`, "02079", ""},
		{Phone, `"90909"`, "90909", ""},
		{Phone, `"1234 ext 56"`, nil, "phone"},
		{Phone, `"909090909090909"`, "909090909090909", ""},
		{Phone, `"1234567890123456"`, nil, "phone"},
		{Number, `-1.50`, number("-1.50"), ""},
		{Number, `0e400`, number("0e400"), ""},
		{Number, `0e401`, nil, "number"},
		{Number, `0E99999999999999999999`, nil, "number"},
		{Number, `1e-999999999999`, nil, "number"},
		{Number, `1e-400`, number("1e-400"), ""},
		{Number, `1e-401`, nil, "number"},
		{Number, `1e400`, nil, "number"},
		{Number, `12.5e+2`, number("12.5e+2"), ""},
		{Number, `1E-300`, number("1E-300"), ""},
		{Number, times("1", 40), number(times("1", 40)), ""},
		{Number, times("1", 41), nil, "number"},
		{Number, `"1"`, nil, "number"},
		{Date, `"2028-02-29"`, "2028-02-29", ""},
		{Date, `"0001-01-01"`, "0001-01-01", ""},
		{Date, `"0000-12-31"`, nil, "date"},
		{Date, `"2026-02-29"`, nil, "date"},
		{Select, `"one"`, "one", ""},
		{Select, `"three"`, nil, "option"},
		{Multiselect, `["two","one"]`, []string{"two", "one"}, ""},
		{Multiselect, `["one","three"]`, nil, "options"},
		{Multiselect, `["two","one","two"]`, nil, "Choice 3 is a duplicate."},
		{Multiselect, `"one"`, nil, "Must be an array of strings."},
		{Multiselect, `[1]`, nil, "Must be an array of strings."},
		{Consent, `true`, true, ""},
		{Consent, `false`, false, ""},
		{Consent, `"true"`, nil, "Must be true or false."},
	}
}

func TestRead_StoresOrRefusesAnswerByTypeOfField(t *testing.T) {
	for _, c := range answersByType() {
		field := Field{Type: c.kind}
		if field.HasOptions() {
			field.Options = []string{"one", "two"}
		}
		stored, refusal := readOne(t, field, c.raw)
		if !reflect.DeepEqual(stored, c.stored) || refusal != c.refusal {
			t.Errorf("%s %s: %#v, %q, want %#v, %q", c.kind, c.raw, stored, refusal, c.stored, c.refusal)
		}
	}
}

// An answer that is absent, null or empty is stored for no type, and refused if the field is required.
func TestRead_RefusesEmptyAnswerToRequiredField(t *testing.T) {
	for _, kind := range types {
		empty, refused := `""`, "missing"
		switch kind {
		case Consent:
			empty, refused = "false", "agree"
		case Multiselect:
			empty = "[]"
		case Number:
			empty = "null"
		}
		for _, raw := range []string{"", "null", empty} {
			if _, refusal := readOne(t, Field{Type: kind, Required: true}, raw); refusal != refused {
				t.Errorf("required %s %s: %q, want %q", kind, raw, refusal, refused)
			}
			stored, refusal := readOne(t, Field{Type: kind}, raw)
			if refusal != "" || stored != nil && stored != false {
				t.Errorf("%s %s: %v, %q", kind, raw, stored, refusal)
			}
		}
	}
}

// A refusal says what is wrong with each field, also with those that the form does not have (E2).
func TestE2_RefusalNamesEachInvalidAnswer(t *testing.T) {
	form := Form{Fields: []Field{
		{Name: "name", Type: Text, Required: true},
		{Name: "email", Type: Email},
		{Name: "area", Type: Text},
	}}
	_, _, err := form.Read(rest.Object{
		"email":   json.RawMessage(`"ada"`),
		"area":    json.RawMessage(`"York"`),
		"website": json.RawMessage(`"x"`),
		"<b>":     json.RawMessage(`"x"`),
	}, english)
	problems, _ := errors.AsType[rest.Problems](err)
	if got := problems.Lines(); !slices.Equal(got, []string{
		"answers: Contains a name that is not a field of this form.",
		"email: email",
		"name: missing",
		"website: The form does not have this field.",
	}) {
		t.Errorf("%q", got)
	}
}

// Every consent field of the form has a consent, given or not, with the version of its notice (E4).
func TestE4_ConsentHasVersionOfItsNotice(t *testing.T) {
	fields := []Field{
		{Name: "news", Type: Consent, Label: "Send me news."},
		{Name: "share", Type: Consent, Label: "Share my answers."},
		{Name: "keep", Type: Consent, Label: "Keep my answers."},
		{Name: "name", Type: Text, Label: "Name"},
	}
	_, consents, err := Form{Fields: fields}.Read(rest.Object{
		"news":  json.RawMessage("true"),
		"share": json.RawMessage("false"),
		"name":  json.RawMessage(`"Ada"`),
	}, english)
	want := []ConsentAnswer{
		{"news", fields[0].NoticeVersion(), true},
		{"share", fields[1].NoticeVersion(), false},
		{"keep", fields[2].NoticeVersion(), false},
	}
	if err != nil || !slices.Equal(consents, want) || len(want[0].NoticeVersion) != 12 {
		t.Errorf("%+v, %v, want %+v", consents, err, want)
	}
}

func TestAnswers_KeepEveryDigitOfNumbersInStore(t *testing.T) {
	var answers Answers
	stored := `{"hours":12345678901234567890.50,"name":"Ada"}`
	if err := json.Unmarshal([]byte(stored), &answers); err != nil {
		t.Fatal(err)
	}
	if again, err := json.Marshal(answers); err != nil || string(again) != stored {
		t.Errorf("%s, %v", again, err)
	}
	if err := answers.UnmarshalJSON([]byte(`{"hours"`)); err == nil {
		t.Error("half an object was read")
	}
}

func everyType() Form {
	f := Form{}
	for _, kind := range types {
		field := Field{Name: string(kind), Label: "A question", Type: kind}
		if field.HasOptions() {
			field.Options = []string{"one", "two"}
		}
		f.Fields = append(f.Fields, field)
	}
	return f
}

// FuzzAnswers checks that accepted answers can be stored: they are JSON that reads back the same, without characters
// that Postgres refuses. All other input must yield rest.Problems.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{
		`"x"`, `1.50`, `true`, `["one","two"]`, `"a@example.org"`, `"2026-02-28"`, `"+44 20 7946"`, `null`, `"\u0000"`,
		`"\ud800"`, `1e400`, `[null]`, `{}`, ``, ` 1`, `"one`,
	} {
		f.Add([]byte(seed))
	}
	form := everyType()
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !utf8.Valid(raw) || !json.Valid(raw) {
			return // package rest refuses both
		}
		for _, field := range form.Fields {
			answers, _, err := form.Read(rest.Object{field.Name: raw}, english)
			if err != nil {
				if _, blames := errors.AsType[rest.Problems](err); !blames {
					t.Errorf("%s: %q: %v, want rest.Problems", field.Name, raw, err)
				}
				continue
			}
			kept, err := json.Marshal(answers)
			if err != nil {
				t.Fatalf("%s: %q: %v", field.Name, raw, err)
			}
			var again rest.Object
			if err := json.Unmarshal(kept, &again); err != nil {
				t.Fatal(err)
			}
			second, _, err := form.Read(again, english)
			if err != nil {
				t.Fatalf("%s: %q was accepted, but its stored form %s is not: %v", field.Name, raw, kept, err)
			}
			if text, _ := json.Marshal(second); string(text) != string(kept) {
				t.Fatalf("%s: %s, then %s", field.Name, kept, text)
			}
			if bytes.ContainsRune(kept, 0) {
				t.Fatalf("%q", kept)
			}
		}
	})
}

func TestNoticeVersion_DependsOnLabelOnly(t *testing.T) {
	one, two := Field{Label: "Keep my answers."}, Field{Label: "Keep my answers!"}
	if one.NoticeVersion() == two.NoticeVersion() ||
		one.NoticeVersion() != (Field{Name: "x", Label: one.Label}).NoticeVersion() {
		t.Errorf("%s, %s", one.NoticeVersion(), two.NoticeVersion())
	}
}

// english has a text for each problem.
var english = Problems{
	Missing: "missing",
	Agree:   "agree",
	TooLong: "at most %d",
	Control: "control",
	Email:   "email",
	Phone:   "phone",
	Number:  "number",
	Date:    "date",
	Option:  "option",
	Options: "options",
}
