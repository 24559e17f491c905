package engage

import (
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
)

// DefaultLanguage is the language of a form that sets none.
const DefaultLanguage = "en"

// A Language is the built-in texts of forms in one language. Each language is a file in the folder languages. The name
// of the file, without ".json", is the value of a form's lang. The texts that a workspace has entered are not
// translated.
type Language struct {
	Name      string `json:"-"`         // name of the file without .json
	Tag       string `json:"tag"`       // BCP 47, for the page's lang attribute
	Direction string `json:"direction"` // ltr or rtl, for its dir attribute
	Decimal   string `json:"decimal"`   // separator in numbers: a point or a comma

	Optional       string `json:"optional"`
	Choose         string `json:"choose"`
	Send           string `json:"send"`
	SendAgain      string `json:"sendAgain"`
	Sending        string `json:"sending"`
	OpenAgain      string `json:"openAgain"`
	LeaveEmpty     string `json:"leaveEmpty"`
	Agreement      string `json:"agreement"`
	AskIf          string `json:"askIf"` // %s: the label of the earlier field, and its answer
	AskIfAgreed    string `json:"askIfAgreed"`
	Asked          string `json:"asked"`          // %s: the label of the field
	NotAsked       string `json:"notAsked"`       // %s: the label of the field
	TitleToCorrect string `json:"titleToCorrect"` // %s: the title
	CorrectOne     string `json:"correctOne"`
	CorrectMany    string `json:"correctMany"` // %d: how many answers
	TooOld         string `json:"tooOld"`
	TooQuick       string `json:"tooQuick"`
	Restored       string `json:"restored"`
	Clear          string `json:"clear"`
	Thanks         string `json:"thanks"`
	Processing     string `json:"processing"`
	Processed      string `json:"processed"`
	Rejected       string `json:"rejected"`

	Reasons  Reasons  `json:"reasons"`
	Problems Problems `json:"problems"`
	Pages    Pages    `json:"pages"`
}

// Reasons are the texts of the reasons for the rejection of an accepted submission.
type Reasons struct {
	Trapped string `json:"trapped"`
	Failed  string `json:"failed"`
}

// A PageText is the title and the text of a page that replaces the form.
type PageText struct {
	Title string `json:"title"`
	Text  string `json:"text"`
}

// Pages are the texts of the pages that replace the form.
type Pages struct {
	NotFound          PageText `json:"notFound"`
	Forbidden         PageText `json:"forbidden"`
	Conflict          PageText `json:"conflict"`
	RateLimited       PageText `json:"rateLimited"`
	TooLarge          PageText `json:"tooLarge"`
	Invalid           PageText `json:"invalid"`
	NotProvisioned    PageText `json:"notProvisioned"`
	Unavailable       PageText `json:"unavailable"`
	Internal          PageText `json:"internal"`
	UnsentUnavailable PageText `json:"unsentUnavailable"` // the page still has the answers
	UnsentInternal    PageText `json:"unsentInternal"`    // the page has the answers
	UnsentRateLimited PageText `json:"unsentRateLimited"` // the page has the answers
	UnsentOffline     PageText `json:"unsentOffline"`     // the page sends the answers later
	UnsentNoResponse  PageText `json:"unsentNoResponse"`  // the answers may have arrived
	StatusUnknown     PageText `json:"statusUnknown"`
}

// Reason translates a stored reason. It returns other texts unchanged.
func (l *Language) Reason(stored string) string {
	switch stored {
	case ReasonTrapped:
		return l.Reasons.Trapped
	case ReasonFailed:
		return l.Reasons.Failed
	}
	return stored
}

// Isolate returns a text of the workspace, which may be in a language that is written in the other direction. In a page
// from right to left it is between the characters FSI and PDI, so that its punctuation stays in its place (Unicode UAX
// 9, section 2.4).
func (l *Language) Isolate(text string) string {
	if l.Direction == "rtl" {
		return "\u2068" + text + "\u2069"
	}
	return text
}

//go:embed languages/*.json
var languageFiles embed.FS

var languages = mustReadAll()

func mustReadAll() map[string]*Language {
	entries, err := languageFiles.ReadDir("languages")
	out := map[string]*Language{}
	for _, entry := range entries {
		content, failed := languageFiles.ReadFile("languages/" + entry.Name())
		name := strings.TrimSuffix(entry.Name(), path.Ext(entry.Name()))
		language, invalid := ReadLanguage(name, content)
		err = errors.Join(err, failed, invalid)
		out[name] = language
	}
	if err != nil {
		panic(err) // a test reads the files
	}
	return out
}

// ReadLanguage parses the file of a language. It returns an error if a text is missing.
func ReadLanguage(name string, content []byte) (*Language, error) {
	language := &Language{Name: name}
	decoder := json.NewDecoder(strings.NewReader(string(content)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(language); err != nil {
		return nil, fmt.Errorf("language %s: %w", name, err)
	}
	if language.Direction != "ltr" && language.Direction != "rtl" {
		return nil, fmt.Errorf("language %s: direction must be ltr or rtl", name)
	}
	if language.Decimal != "." && language.Decimal != "," {
		return nil, fmt.Errorf("language %s: decimal must be . or ,", name)
	}
	if missing := emptyTexts(reflect.ValueOf(*language), ""); len(missing) > 0 {
		return nil, fmt.Errorf("language %s: no text for %s", name, strings.Join(missing, ", "))
	}
	return language, nil
}

// emptyTexts returns the paths of the empty strings of a struct.
func emptyTexts(value reflect.Value, under string) []string {
	var out []string
	for i, field := range reflect.VisibleFields(value.Type()) {
		at := under + field.Tag.Get("json")
		switch field.Type.Kind() {
		case reflect.Struct:
			out = append(out, emptyTexts(value.Field(i), at+".")...)
		default:
			if value.Field(i).String() == "" {
				out = append(out, at)
			}
		}
	}
	return out
}

// LanguageOf returns the language with the name, or the default language if there is none.
func LanguageOf(name string) *Language {
	return cmp.Or(languages[name], languages[DefaultLanguage])
}

// LanguageOfTag returns the name of the language that a BCP 47 tag such as de or de-AT is about, or "".
func LanguageOfTag(tag string) string {
	name, _, _ := strings.Cut(strings.ToLower(tag), "-")
	if !KnownLanguage(name) {
		return ""
	}
	return name
}

// KnownLanguage reports whether there is a language with the name.
func KnownLanguage(name string) bool { return languages[name] != nil }

// Languages returns the names of the languages.
func Languages() []string { return slices.Sorted(maps.Keys(languages)) }
