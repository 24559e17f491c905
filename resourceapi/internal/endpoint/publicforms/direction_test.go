package publicforms

import (
	"encoding/json"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/devkit/testkit"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

// The label and the option of a hint are isolated, so that their direction does not change its order.
func TestPage_LanguageFromRightToLeft(t *testing.T) {
	v := viewOf(engage.Form{Title: "تطوع معنا", Lang: "ar", Fields: []engage.Field{
		{Name: "name", Label: "اسمك", Type: engage.Text},
		{Name: "email", Label: "بريدك", Type: engage.Email},
		{Name: "help", Label: "Help?", Type: engage.Select, Options: []string{"Driving"}},
		{Name: "licence", Label: "رخصة", Type: engage.Text, AskIf: &engage.Condition{Field: "help", Equals: "Driving"}},
	}}, pageStyle{})
	w := httptest.NewRecorder()
	testkit.Must(t, new(Endpoint).render(w, 200, nil, v))
	for _, piece := range []string{
		`<html lang="ar" dir="rtl">`, `<button type="submit">إرسال</button>`,
		`type="text" autocomplete="name" dir="auto"`, `type="email" autocomplete="email" dir="ltr"`,
		`<label for="f2">` + "\u2068Help?\u2069", "«\u2068Help?\u2069» هو «\u2068Driving\u2069»",
	} {
		if !strings.Contains(w.Body.String(), piece) {
			t.Errorf("the page lacks %s: %s", piece, w.Body)
		}
	}
}

var physical = regexp.MustCompile(
	`(margin|padding|border)-(left|right)|text-align: ?(left|right)|[{; ](left|right):|float:`,
)

func TestStyle_HasNoLeftOrRight(t *testing.T) {
	if found := physical.FindAllString(string(embedCSS), -1); len(found) > 0 {
		t.Errorf("%q", found)
	}
}

// Each row is a language, what a person types into a field of type number, and the number; or what is refused.
func TestNumberTyped_ReadsNumbersOfLanguage(t *testing.T) {
	for _, c := range []struct {
		lang, typed string
		want        any
	}{
		{"en", " +03.50 ", json.Number("3.50")},
		{"en", "3,5", "3,5"},
		{"en", "1,234", "1,234"},
		{"en", "1.234", json.Number("1.234")},
		{"de", "3,5", json.Number("3.5")},
		{"de", "3.5", json.Number("3.5")},
		{"de", "-0,125", json.Number("-0.125")},
		{"de", "1.234", "1.234"}, // perhaps 1234
		{"de", "0.125", json.Number("0.125")},
		{"de", "1.234,5", "1.234,5"},
		{"de", "1,2,3", "1,2,3"},
		{"ar", "٣٫٥", json.Number("3.5")},
		{"ur", "۱۲", json.Number("12")},
		{"de", " ", nil},
	} {
		if got := numberTyped(c.typed, engage.LanguageOf(c.lang)); got != c.want {
			t.Errorf("%s %q: %#v, want %#v", c.lang, c.typed, got, c.want)
		}
	}
}
