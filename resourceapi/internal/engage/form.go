// Package engage defines public forms, the answers to them and the tokens of their submissions.
//
// A workspace creates forms; anyone can submit them on the websites that the form lists. A submission is accepted first
// and later processed by a worker, which creates a supporter (contract, section 6).
//
//   - E1 A form has 1 to 50 fields, each with a unique name and a known type.
//   - E2 Answers are accepted only if every field is valid; a refusal says what is wrong with each.
//   - E3 A submission token is valid for one submission to one form, within an hour.
//   - E4 A consent is stored with the version of the notice that was on screen.
//   - E5 A submission is accepted, then processed or rejected; both are final.
//   - E6 A submission by a stranger never changes what is stored about a supporter.
//   - E7 The forms of a workspace, and the submissions of a form, become visible in the order of their times: none
//     appears with a createdAt or updatedAt that is not later than all that could be read before.
//   - E8 A field with a condition is required only if it is asked. The answers that were sent decide that. An answer to
//     a field that is not asked is accepted, because the page without scripts asks every field.
package engage

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/displayname"
	"github.com/almonerhq/almoner/shared/rest"
)

// MaxTitle is the maximum length of a title, in characters.
const MaxTitle = 200

// Bounds of Form.RetentionMonths.
const (
	DefaultRetentionMonths = 24
	MaxRetentionMonths     = 120
)

const (
	maxOrigins = 20
	maxOrigin  = 300 // bytes
)

// maxFormText is the maximum length of an introduction or a thank-you text, in characters.
const maxFormText = 2000

// A Form is a public form, as returned to its workspace. Its fields never change, so that it records what was asked and
// agreed to. To ask something else, the workspace creates another form and closes this one.
type Form struct {
	ID             uuid.UUID `json:"id"`
	EmbedKey       string    `json:"embedKey"`
	Title          string    `json:"title"`
	Introduction   string    `json:"introduction"` // shown above the fields; may be empty
	ThankYou       string    `json:"thankYou"`     // shown after the form was sent; empty for the built-in text
	Lang           string    `json:"lang"`         // of the built-in texts (Language)
	Fields         []Field   `json:"fields"`
	AllowedOrigins []string  `json:"allowedOrigins"` // websites that may embed the form and submit to it from scripts
	Enabled        bool      `json:"enabled"`
	CreatedAt      rest.Time `json:"createdAt"`
	// RetentionMonths is the number of months after which submissions are deleted.
	RetentionMonths int       `json:"retentionMonths"`
	WorkspaceID     uuid.UUID `json:"-"`
	Version         int       `json:"-"` // counts changes, from 1
}

// A FormState is a form with the state of the Engage module in its workspace.
type FormState struct {
	Form
	ModuleEnabled     bool
	ModuleProvisioned bool
}

// Open reports whether the form is visible to the public.
func (f FormState) Open() bool { return f.Enabled && f.ModuleEnabled }

// Allows reports whether a page of the origin may use the form. Origins are compared byte by byte, as browsers send
// them.
func (f Form) Allows(origin string) bool { return slices.Contains(f.AllowedOrigins, origin) }

// Check returns rest.Problems, or nil. It enforces E1.
func (f Form) Check() error {
	problems := rest.Problems{}
	f.checkTexts(problems)
	if len(f.Fields) == 0 || len(f.Fields) > MaxFields {
		problems["fields"] = fmt.Sprintf("A form must have 1 to %d fields.", MaxFields)
		return problems
	}
	seen := map[string]bool{}
	for i, field := range f.Fields {
		at := fmt.Sprintf("fields[%d]", i)
		field.check(at, problems)
		if field.AskIf != nil {
			field.AskIf.check(at+".askIf", f.Fields[:i], problems)
		}
		if seen[field.Name] {
			problems[at+".name"] = "Another field has this name."
		}
		seen[field.Name] = true
	}
	f.checkUse(problems)
	return problems.OrNil()
}

func (f Form) checkTexts(problems rest.Problems) {
	problems.Note("title", cmp.Or(checkLine(f.Title, MaxTitle), displayname.Check(f.Title, MaxTitle)))
	problems.Note("introduction", checkFormText(f.Introduction))
	problems.Note("thankYou", checkFormText(f.ThankYou))
}

// checkFormText checks a text of several lines. A line may be empty; otherwise the rules for titles apply to it.
func checkFormText(text string) string {
	if utf8.RuneCountInString(text) > maxFormText {
		return fmt.Sprintf("Must have at most %d characters.", maxFormText)
	}
	for line := range strings.SplitSeq(text, "\n") {
		if strings.Trim(line, " ") == "" {
			continue
		}
		if message := displayname.Check(line, maxFormText); message != "" {
			return "A line is not valid: " + message
		}
	}
	return ""
}

// checkUse checks where a form may be used, and for how long its submissions are stored.
func (f Form) checkUse(problems rest.Problems) {
	if len(f.AllowedOrigins) > maxOrigins {
		problems["allowedOrigins"] = fmt.Sprintf("Must have at most %d origins.", maxOrigins)
	}
	for i, origin := range f.AllowedOrigins {
		if !isOrigin(origin) {
			problems[fmt.Sprintf("allowedOrigins[%d]", i)] = "Must be an origin, such as https://www.example.org: " +
				"a scheme, a host in lower case, and the port if it is not the default one. No path and no " +
				"trailing slash."
		}
	}
	if f.RetentionMonths < 1 || f.RetentionMonths > MaxRetentionMonths {
		problems["retentionMonths"] = fmt.Sprintf("Must be an integer from 1 to %d.", MaxRetentionMonths)
	}
}

// A Change is an edit of a form. A nil field stays unchanged.
type Change struct {
	Title          *string
	Introduction   *string
	ThankYou       *string
	Lang           *string
	AllowedOrigins *[]string
	Enabled        *bool // false closes the form, which then appears not to exist
	// RetentionMonths also applies to existing submissions.
	RetentionMonths *int
}

// Check returns rest.Problems, or nil. It changes a form without problems, so that it finds those of the change alone.
func (c Change) Check() error {
	problems := rest.Problems{}
	changed := c.Apply(Form{Title: "Form", RetentionMonths: DefaultRetentionMonths})
	changed.checkTexts(problems)
	changed.checkUse(problems)
	return problems.OrNil()
}

// Apply returns the changed form.
func (c Change) Apply(f Form) Form {
	set(&f.Title, c.Title)
	set(&f.Introduction, c.Introduction)
	set(&f.ThankYou, c.ThankYou)
	set(&f.Lang, c.Lang)
	set(&f.AllowedOrigins, c.AllowedOrigins)
	set(&f.Enabled, c.Enabled)
	set(&f.RetentionMonths, c.RetentionMonths)
	return f
}

func set[T any](member, changed *T) {
	if changed != nil {
		*member = *changed
	}
}

// Differences returns the names of the members in which the forms differ, in the order of the documentation.
func (f Form) Differences(other Form) []string {
	var names []string
	for _, one := range []struct {
		name    string
		differs bool
	}{
		{"title", f.Title != other.Title},
		{"introduction", f.Introduction != other.Introduction},
		{"thankYou", f.ThankYou != other.ThankYou},
		{"lang", f.Lang != other.Lang},
		{"allowedOrigins", !slices.Equal(f.AllowedOrigins, other.AllowedOrigins)},
		{"enabled", f.Enabled != other.Enabled},
		{"retentionMonths", f.RetentionMonths != other.RetentionMonths},
	} {
		if one.differs {
			names = append(names, one.name)
		}
	}
	return names
}

// host matches a name or an address without characters that are special in a Content-Security-Policy.
var host = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*|\[[0-9a-f:]+\])$`)

// isOrigin reports whether text is a serialized origin as browsers send it (RFC 6454, section 6.2): scheme, host, and
// the port if it is not the scheme's default.
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxOrigin || u.Scheme+"://"+u.Host != text {
		return false
	}
	usual := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	if usual == "" || u.Port() == usual {
		return false
	}
	name := u.Host
	if port := u.Port(); port != "" {
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil || strconv.FormatUint(number, 10) != port {
			return false
		}
		name = name[:len(name)-len(port)-1]
	}
	return host.MatchString(name)
}

// NoticeVersion identifies the text of a consent's notice (E4): the first 12 hex digits of its SHA-256.
func (f Field) NoticeVersion() string {
	sum := sha256.Sum256([]byte(f.Label))
	return hex.EncodeToString(sum[:6])
}

var (
	// ErrNotFound is returned if there is no such form or submission, or none that the caller may see.
	ErrNotFound = errors.New("no such form or submission")
	// ErrNoSubmission and ErrNoSupporter are returned if the workspace has no such record.
	ErrNoSubmission = apierr.New(apierr.NotFound, "There is no such submission in this workspace.")
	ErrNoSupporter  = apierr.New(apierr.NotFound, "There is no such supporter in this workspace.")
	// ErrToken is returned for a submission token that was not issued for this form or is older than an hour.
	ErrToken = rest.Problems{"submissionToken": "Is not a valid token of this form, or is older than an hour. Read " +
		"the form again to get a new one."}
	// ErrTokenUsed is returned if a submission was already made with this token.
	ErrTokenUsed = apierr.New(apierr.Conflict,
		"This submissionToken was already used. Read the form again to get a new one.")
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
	// AskIf is nil if the field is always asked. Otherwise it is required only if it is asked (E8).
	AskIf *Condition `json:"askIf,omitempty"`
}

// HasOptions reports whether the answer is chosen from options.
func (f Field) HasOptions() bool { return f.Type == Select || f.Type == Multiselect }

var fieldName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)

// check adds the problems of the field to problems, with names that begin with at.
func (f Field) check(at string, problems rest.Problems) {
	if !fieldName.MatchString(f.Name) {
		problems[at+".name"] = "Must start with a letter and have only letters, digits, hyphens and underscores, " +
			"at most 64 characters."
	}
	longest := maxLabel
	if f.Type == Consent {
		longest = maxNotice
	}
	problems.Note(at+".label", checkLine(f.Label, longest))
	if !slices.Contains(types, f.Type) {
		problems[at+".type"] = "Must be text, textarea, email, phone, number, date, select, multiselect or consent."
		return
	}
	problems.Note(at+".options", f.checkOptions())
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
