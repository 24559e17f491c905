package engage

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/almonerhq/almoner/shared/displayname"

	"github.com/almonerhq/almoner/resourceapi/internal/invalid"
)

// A Type is the kind of answer of a field.
type Type string

// The types.
const (
	Text        Type = "text"
	Textarea    Type = "textarea"
	Email       Type = "email"
	Phone       Type = "phone"
	Number      Type = "number"
	Date        Type = "date"
	Select      Type = "select"
	Multiselect Type = "multiselect"
	Consent     Type = "consent"
)

var types = []Type{Text, Textarea, Email, Phone, Number, Date, Select, Multiselect, Consent}

// Limits of a field, in characters unless stated otherwise.
const (
	MaxFields  = 50  // of a form
	MaxOptions = 100 // of a field
	maxLabel   = 200
	maxNotice  = 2000 // the label of a consent is the notice itself
	maxOption  = 200
)

// A Field is one question.
type Field struct {
	Name     string   `json:"name"`
	Label    string   `json:"label"`
	Type     Type     `json:"type"`
	Required bool     `json:"required"`
	Options  []string `json:"options,omitempty"` // for Select and Multiselect only
}

// HasOptions reports whether the answer is chosen from options.
func (f Field) HasOptions() bool { return f.Type == Select || f.Type == Multiselect }

var fieldName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)

// check adds the problems of the field to problems, with names that begin with at.
func (f Field) check(at string, problems invalid.Fields) {
	if !fieldName.MatchString(f.Name) {
		problems[at+".name"] = "Must start with a letter and have only letters, digits, hyphens and underscores, " +
			"at most 64 characters."
	}
	longest := maxLabel
	if f.Type == Consent {
		longest = maxNotice
	}
	if message := checkLine(f.Label, longest); message != "" {
		problems[at+".label"] = message
	}
	if !slices.Contains(types, f.Type) {
		problems[at+".type"] = "Must be text, textarea, email, phone, number, date, select, multiselect or consent."
		return
	}
	if message := f.checkOptions(); message != "" {
		problems[at+".options"] = message
	}
}

func (f Field) checkOptions() string {
	if !f.HasOptions() {
		if len(f.Options) > 0 {
			return "Only select and multiselect fields can have options."
		}
		return ""
	}
	if len(f.Options) == 0 || len(f.Options) > MaxOptions {
		return fmt.Sprintf("Must have 1 to %d options.", MaxOptions)
	}
	for i, option := range f.Options {
		if message := checkLine(option, maxOption); message != "" {
			return fmt.Sprintf("Option %d: %s", i+1, message)
		}
		if slices.Contains(f.Options[:i], option) {
			return fmt.Sprintf("Option %d is a duplicate.", i+1)
		}
	}
	return ""
}

// checkLine checks a non-empty line of text.
func checkLine(text string, longest int) string {
	switch {
	case strings.TrimSpace(text) == "":
		return "Must not be empty."
	case strings.TrimSpace(text) != text:
		return "Must not begin or end with a space."
	case utf8.RuneCountInString(text) > longest:
		return fmt.Sprintf("Must have at most %d characters.", longest)
	case strings.ContainsFunc(text, unicode.IsControl):
		return "Must be one line without control characters."
	case !displayname.Visible(text):
		return "Must contain a visible character."
	}
	return ""
}
