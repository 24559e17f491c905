package engage

import (
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/almonerhq/almoner/shared/rest"
)

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
			for _, b := range kept {
				if b == 0 {
					t.Fatalf("%q", kept)
				}
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
