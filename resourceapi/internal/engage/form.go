package engage

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/displayname"

	"github.com/almonerhq/almoner/resourceapi/internal/invalid"
)

// MaxTitle is the maximum length of a title, in characters.
const MaxTitle = 200

// Bounds of Definition.RetentionMonths.
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

// A Definition describes a new form.
type Definition struct {
	Title          string
	Introduction   string // shown above the fields; may be empty
	ThankYou       string // shown after the form was sent; empty for the built-in text
	Lang           string // of the built-in texts (package formtext)
	Fields         []Field
	AllowedOrigins []string // websites that may embed the form and submit to it from scripts
	// RetentionMonths is the number of months after which submissions are deleted.
	RetentionMonths int
}

// A Form is a public form. Its fields never change, so that it records what was asked and agreed to. To ask something
// else, the workspace creates another form and closes this one.
type Form struct {
	Definition
	ID          uuid.UUID
	WorkspaceID uuid.UUID
	EmbedKey    string
	Enabled     bool
	CreatedAt   time.Time
	Version     int // counts changes, from 1
}

// A FormState is a form with the state of the Engage module in its workspace.
type FormState struct {
	Form
	ModuleEnabled     bool
	ModuleProvisioned bool
}

// Open reports whether the form is visible to the public.
func (s FormState) Open() bool { return s.Enabled && s.ModuleEnabled }

// Allows reports whether a page of the origin may use the form. Origins are compared byte by byte, as browsers send
// them.
func (f Form) Allows(origin string) bool { return slices.Contains(f.AllowedOrigins, origin) }

// Check returns invalid.Fields, or nil. It enforces E1.
func (d Definition) Check() error {
	problems := invalid.Fields{}
	checkTitle(d.Title, problems)
	checkFormText("introduction", d.Introduction, problems)
	checkFormText("thankYou", d.ThankYou, problems)
	if len(d.Fields) == 0 || len(d.Fields) > MaxFields {
		problems["fields"] = fmt.Sprintf("A form must have 1 to %d fields.", MaxFields)
		return problems
	}
	seen := map[string]bool{}
	for i, field := range d.Fields {
		at := fmt.Sprintf("fields[%d]", i)
		field.check(at, problems)
		if seen[field.Name] {
			problems[at+".name"] = "Another field has this name."
		}
		seen[field.Name] = true
	}
	checkOrigins(d.AllowedOrigins, problems)
	checkRetention(d.RetentionMonths, problems)
	return problems.OrNil()
}

func checkTitle(title string, problems invalid.Fields) {
	message := checkLine(title, MaxTitle)
	if message == "" {
		message = displayname.Check(title, MaxTitle)
	}
	if message != "" {
		problems["title"] = message
	}
}

// checkFormText checks a text of several lines. A line may be empty; otherwise the rules for titles apply to it.
func checkFormText(member, text string, problems invalid.Fields) {
	if utf8.RuneCountInString(text) > maxFormText {
		problems[member] = fmt.Sprintf("Must have at most %d characters.", maxFormText)
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		if strings.Trim(line, " ") == "" {
			continue
		}
		if message := displayname.Check(line, maxFormText); message != "" {
			problems[member] = "A line is not valid: " + message
			return
		}
	}
}

func checkOrigins(origins []string, problems invalid.Fields) {
	if len(origins) > maxOrigins {
		problems["allowedOrigins"] = fmt.Sprintf("Must have at most %d origins.", maxOrigins)
	}
	for i, origin := range origins {
		if !isOrigin(origin) {
			problems[fmt.Sprintf("allowedOrigins[%d]", i)] = "Must be an origin, such as https://www.example.org: " +
				"a scheme, a host in lower case, and the port if it is not the default one. No path and no " +
				"trailing slash."
		}
	}
}

func checkRetention(months int, problems invalid.Fields) {
	if months < 1 || months > MaxRetentionMonths {
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

// Check returns invalid.Fields, or nil.
func (c Change) Check() error {
	problems := invalid.Fields{}
	if c.Title != nil {
		checkTitle(*c.Title, problems)
	}
	if c.Introduction != nil {
		checkFormText("introduction", *c.Introduction, problems)
	}
	if c.ThankYou != nil {
		checkFormText("thankYou", *c.ThankYou, problems)
	}
	if c.AllowedOrigins != nil {
		checkOrigins(*c.AllowedOrigins, problems)
	}
	if c.RetentionMonths != nil {
		checkRetention(*c.RetentionMonths, problems)
	}
	return problems.OrNil()
}

// Apply returns the changed form.
func (c Change) Apply(f Form) Form {
	if c.Title != nil {
		f.Title = *c.Title
	}
	if c.Introduction != nil {
		f.Introduction = *c.Introduction
	}
	if c.ThankYou != nil {
		f.ThankYou = *c.ThankYou
	}
	if c.Lang != nil {
		f.Lang = *c.Lang
	}
	if c.AllowedOrigins != nil {
		f.AllowedOrigins = *c.AllowedOrigins
	}
	if c.Enabled != nil {
		f.Enabled = *c.Enabled
	}
	if c.RetentionMonths != nil {
		f.RetentionMonths = *c.RetentionMonths
	}
	return f
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
