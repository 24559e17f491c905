package programme

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/almonerhq/almoner/shared/displayname"

	"github.com/almonerhq/almoner/resourceapi/internal/invalid"
)

// Limits of the texts, in characters.
const (
	MaxName    = 200
	MaxSummary = 5000
)

// Names of the fields in JSON and in the header of an import.
const (
	FieldName     = "name"
	FieldSummary  = "summary"
	FieldStatus   = "status"
	FieldStartsOn = "startsOn"
	FieldEndsOn   = "endsOn"
)

// Details describe a new programme.
type Details struct {
	Name     string
	Summary  string
	Status   Status
	StartsOn *Date
	EndsOn   *Date

	ExternalID string // "" if none
	Row        int    // in the file of an import, else 0
}

// Check returns invalid.Fields, or nil. It enforces P1.
func (d Details) Check() error {
	problems := invalid.Fields{}
	if message := checkName(d.Name); message != "" {
		problems[FieldName] = message
	}
	if message := checkSummary(d.Summary); message != "" {
		problems[FieldSummary] = message
	}
	if _, known := ParseStatus(string(d.Status)); !known {
		problems[FieldStatus] = StatusMessage
	}
	checkDays(d.StartsOn, d.EndsOn, problems)
	if d.ExternalID != "" {
		checkExternalID(d.ExternalID, problems)
	}
	return problems.OrNil()
}

func checkDays(startsOn, endsOn *Date, problems invalid.Fields) {
	if startsOn != nil && endsOn != nil && endsOn.Before(*startsOn) {
		problems[FieldEndsOn] = "A programme cannot end before it starts."
	}
}

// Messages that several readers of fields share.
const (
	StatusMessage = "Must be draft, active, completed or archived."
	DateMessage   = "Must be a date in the format YYYY-MM-DD."
)

func checkName(name string) string { return displayname.Check(name, MaxName) }

func checkSummary(summary string) string {
	forbidden := func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\n\r\t", r) }
	switch {
	case utf8.RuneCountInString(summary) > MaxSummary:
		return fmt.Sprintf("Must have at most %d characters.", MaxSummary)
	case strings.ContainsFunc(summary, forbidden):
		return "Must not contain control characters."
	}
	return ""
}

// A Change is an edit of a programme. A nil field stays unchanged. The status is not included: it changes only by
// transitions.
type Change struct {
	Name     *string
	Summary  *string
	StartsOn *DateChange
	EndsOn   *DateChange
	// ExternalID is not nil if it changes; "" removes it.
	ExternalID *string
}

// A DateChange sets a day, or removes it if Day is nil.
type DateChange struct{ Day *Date }

// Check returns the invalid.Fields that can be found without the programme, or nil.
func (c Change) Check() error { return c.problems().OrNil() }

func (c Change) problems() invalid.Fields {
	problems := invalid.Fields{}
	if c.Name != nil {
		if message := checkName(*c.Name); message != "" {
			problems[FieldName] = message
		}
	}
	if c.Summary != nil {
		if message := checkSummary(*c.Summary); message != "" {
			problems[FieldSummary] = message
		}
	}
	if c.ExternalID != nil && *c.ExternalID != "" {
		checkExternalID(*c.ExternalID, problems)
	}
	return problems
}

// Apply returns the changed programme, or invalid.Fields. Unchanged fields are not checked: an older release may have
// stored a name that Check would refuse.
func (c Change) Apply(p Programme) (Programme, error) {
	if c.Name != nil {
		p.Name = *c.Name
	}
	if c.Summary != nil {
		p.Summary = *c.Summary
	}
	if c.StartsOn != nil {
		p.StartsOn = c.StartsOn.Day
	}
	if c.EndsOn != nil {
		p.EndsOn = c.EndsOn.Day
	}
	if c.ExternalID != nil {
		p.ExternalID = *c.ExternalID
	}
	problems := c.problems()
	checkDays(p.StartsOn, p.EndsOn, problems)
	return p, problems.OrNil()
}
