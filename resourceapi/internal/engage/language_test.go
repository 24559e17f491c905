package engage

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var verb = regexp.MustCompile(`%.`)

// Each language has every text, with the same formatting verbs as in English.
func TestLanguages_HaveEachTextWithItsVerbs(t *testing.T) {
	all := []string{"ar", "cy", "de", "en", "es", "fr", "pl", "pt", "ro", "so", "uk", "ur"}
	if got := Languages(); !slices.Equal(got, all) {
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

// textsOf returns the texts of a language by their paths in its file.
func textsOf(under string, value reflect.Value) map[string]string {
	texts := map[string]string{}
	for _, field := range reflect.VisibleFields(value.Type()) {
		at, of := under+field.Tag.Get("json"), value.FieldByIndex(field.Index)
		if field.Type.Kind() == reflect.Struct {
			maps.Copy(texts, textsOf(at+".", of))
		} else if !slices.Contains([]string{"-", "tag", "direction", "decimal"}, at) {
			texts[at] = of.String()
		}
	}
	return texts
}

// A table in testdata has for each text of a language what it says, translated back into English by a reader. A text
// that changes is read again.
func TestLanguages_EachTextWasReadBackIntoEnglish(t *testing.T) {
	for _, name := range Languages() {
		if name == DefaultLanguage {
			continue
		}
		content, err := os.ReadFile("testdata/backtranslations/" + name + ".tsv")
		if err != nil {
			t.Error(err)
			continue
		}
		texts := textsOf("", reflect.ValueOf(*LanguageOf(name)))
		for line := range strings.Lines(string(content)) {
			cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
			if len(cells) != 3 || texts[cells[0]] != cells[1] ||
				!slices.Equal(verb.FindAllString(cells[1], -1), verb.FindAllString(cells[2], -1)) {
				t.Errorf("%s: the row %q is not of a text: %q", name, line, texts[cells[0]])
				continue
			}
			delete(texts, cells[0])
		}
		for path, text := range texts {
			t.Errorf("%s: %s was not read: %q", name, path, text)
		}
	}
}

// Marks and letters that look right and are wrong in a language.
func TestLanguages_HaveTheirOwnPunctuation(t *testing.T) {
	wrong := map[string]string{
		"ar": `[?;]|\p{Arabic},|[\x{06a9}\x{06cc}\x{06c1}]`, // ASCII marks; letters of Urdu
		"de": `[”"]|\w…`,
		"es": `(^|[.!] )[^¿]*\?`,
		"fr": `[^\x{a0}\x{202f}][:;?!»]|«[^\x{a0}\x{202f}]`, // a space that does not break is missing
		"pl": `“`,
		"ro": `[\x{15e}\x{15f}\x{162}\x{163}]`, // a cedilla in place of a comma below
		"uk": `[ыэъё]`,
		"ur": `[?;]|\p{Arabic}[,.]|[\x{0643}\x{064a}\x{0647}]`, // ASCII marks; letters of Arabic
	}
	for _, name := range Languages() {
		pattern := regexp.MustCompile(`'|\.\.\.|  ` + strings.TrimSuffix("|"+wrong[name], "|"))
		for path, text := range textsOf("", reflect.ValueOf(*LanguageOf(name))) {
			if found := pattern.FindString(text); found != "" {
				t.Errorf("%s: %s has %q: %q", name, path, found, text)
			}
		}
	}
}

// The examples of a language are answers that its forms accept.
func TestLanguages_NumbersHaveTheirDecimalSeparator(t *testing.T) {
	for _, name := range Languages() {
		words := LanguageOf(name)
		if example := "4" + words.Decimal + "5"; !strings.Contains(words.Problems.Number, example) {
			t.Errorf("%s: %q lacks %s", name, words.Problems.Number, example)
		}
		if rtl := name == "ar" || name == "ur"; rtl != (words.Direction == "rtl") {
			t.Errorf("%s is written %s", name, words.Direction)
		}
	}
	for tag, want := range map[string]string{"pl": "pl", "de-AT": "de", "EN-gb": "en", "xx": "", "": "", "-de": ""} {
		if got := LanguageOfTag(tag); got != want {
			t.Errorf("%q is %q, want %q", tag, got, want)
		}
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
		`"decimal": "."`:           `"decimal": "point"`,
		`"title": "Nid yw’r[^"]*"`: `"title": ""`,
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
