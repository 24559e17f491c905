package engage

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var verb = regexp.MustCompile(`%.`)

// Each language has every text, with the same formatting verbs as in English.
func TestLanguages_HaveEachTextWithItsVerbs(t *testing.T) {
	if got := Languages(); !slices.Equal(got, []string{"cy", "en"}) {
		t.Errorf("%q", got)
	}
	var compare func(at string, a, b reflect.Value)
	compare = func(at string, a, b reflect.Value) {
		for i := range a.NumField() {
			if a.Field(i).Kind() == reflect.Struct {
				compare(at+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))
				continue
			}
			want, got := verb.FindAllString(a.Field(i).String(), -1), verb.FindAllString(b.Field(i).String(), -1)
			if !slices.Equal(got, want) {
				t.Errorf("%s.%s: %q, in English %q", at, a.Type().Field(i).Name, got, want)
			}
		}
	}
	for _, name := range Languages() {
		compare(name, reflect.ValueOf(*LanguageOf(DefaultLanguage)), reflect.ValueOf(*LanguageOf(name)))
	}
}

func TestReadLanguage_RefusesFileWithoutAText(t *testing.T) {
	content, err := languageFiles.ReadFile("languages/cy.json")
	if err != nil {
		t.Fatal(err)
	}
	if !KnownLanguage("cy") || KnownLanguage("xx") {
		t.Error("a language is not known by the name of its file")
	}
	rtl := strings.Replace(string(content), `"ltr"`, `"rtl"`, 1)
	if language, err := ReadLanguage("ar", []byte(rtl)); err != nil || language.Direction != "rtl" {
		t.Errorf("a language that is written from right to left: %v", err)
	}
	for replaced, by := range map[string]string{
		`"email": "[^"]*"`:         `"email": ""`,
		`"send": "[^"]*",`:         ``,
		`"send": `:                 `"sent": `,
		`"direction": "ltr"`:       `"direction": "left"`,
		`"title": "Nid yw'r[^"]*"`: `"title": ""`,
	} {
		broken := regexp.MustCompile(replaced).ReplaceAllString(string(content), by)
		if _, err := ReadLanguage("cy", []byte(broken)); err == nil {
			t.Errorf("%s: accepted with %s", replaced, by)
		}
	}
}

// The stored reasons, which are in English, are equal to the texts of the English file.
func TestLanguage_ReasonsMatchStoredOnes(t *testing.T) {
	english, welsh := LanguageOf("en"), LanguageOf("cy")
	for _, stored := range []string{ReasonTrapped, ReasonFailed} {
		if english.Reason(stored) != stored || welsh.Reason(stored) == stored {
			t.Errorf("%s: %s, %s", stored, english.Reason(stored), welsh.Reason(stored))
		}
	}
	if got := welsh.Reason("Another reason."); got != "Another reason." {
		t.Error(got)
	}
	if got := LanguageOf("xx"); got != english {
		t.Error(fmt.Sprint(got.Name))
	}
}
