// Package programme defines programmes and the rules for changing, listing and importing them.
//
// It does no I/O. Stores and endpoints use its types. Its rules (contract, section 6) are:
//
//	P1  A programme has a name, and does not end before it starts.
//	P2  Its status changes only along these arrows: draft → active → completed → archived, draft → archived.
//	P3  The list has one order, created_at then id, newest first, whatever is inserted meanwhile.
//	P4  A cursor continues only the list that it came from (workspace and filters).
//	P5  Either all rows of an import become programmes, or none does.
//	P6  Programmes become visible in the order of their times: none appears with a createdAt or updatedAt that is not
//	    later than all that could be read before. A client that stops at the newest programme it knows, or continues
//	    with the newest updatedAt that it has seen, misses none.
package programme

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/displayname"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
)

// A Programme is one record of a workspace.
type Programme struct {
	ID uuid.UUID
	Details

	CreatedAt time.Time // with the microsecond precision of Postgres
	UpdatedAt time.Time
	Version   int // counts the changes from 1; source of the entity tag
}

// New returns the first version of a programme, without its times.
func New(id uuid.UUID, d Details) Programme { return Programme{ID: id, Details: d, Version: 1} }

// Same reports whether p and q are the same version of the same programme.
func (p Programme) Same(q Programme) bool {
	if !sameDay(p.StartsOn, q.StartsOn) || !sameDay(p.EndsOn, q.EndsOn) {
		return false
	}
	p.StartsOn, p.EndsOn = q.StartsOn, q.EndsOn
	return p == q
}

// A Status is the state of a programme.
type Status string

// The statuses.
const (
	Draft     Status = "draft"
	Active    Status = "active"
	Completed Status = "completed"
	Archived  Status = "archived"
)

// ParseStatus parses a status, which must match exactly.
func ParseStatus(text string) (Status, bool) {
	s := Status(text)
	return s, slices.Contains([]Status{Draft, Active, Completed, Archived}, s)
}

// CanBecome reports whether a programme may move from status s to the other (P2).
func (s Status) CanBecome(to Status) bool {
	switch s {
	case Draft:
		return to == Active || to == Archived
	case Active:
		return to == Completed
	case Completed:
		return to == Archived
	}
	return false
}

// Errors other than rest.Problems.
var (
	ErrNotFound   = apierr.New(apierr.NotFound, "There is no such record in this workspace.")
	ErrNoDraft    = apierr.New(apierr.Conflict, "Only a draft can be deleted. Archive the programme instead.")
	ErrTransition = apierr.New(apierr.Conflict,
		"The programme cannot change from its current status to this status. Allowed transitions: draft to "+
			"active, active to completed, completed to archived, and draft to archived.")
	// ErrExternalID is returned for an external id that another programme of the workspace has.
	ErrExternalID = apierr.New(apierr.Conflict, "Another programme of this workspace has this externalId.")
	// ErrTooExpensive is returned for a search that exceeds its time limit.
	ErrTooExpensive = apierr.New(apierr.TooExpensive,
		"This search takes too long. Search for a longer or less common text, or filter by status.")
	// ErrImportsWait is returned if too many imports of the workspace wait to be processed.
	ErrImportsWait = &apierr.Error{
		Kind:       apierr.RateLimited,
		RetryAfter: 10,
		Message: "Too many imports of this workspace are waiting. Send this import again after the time in " +
			"Retry-After.",
	}
)

// A Writer changes the records of a workspace within one transaction.
type Writer interface {
	// Create returns ErrExternalID if another programme has the external id.
	Create(ctx context.Context, workspaceID uuid.UUID, d Details) (Programme, error)
	// Replace stores the result of edit. It returns ErrNotFound, ErrExternalID, or the error of edit.
	Replace(ctx context.Context, workspaceID, id uuid.UUID, edit func(Programme) (Programme, error)) (Programme, error)
	// DeleteDraft deletes a draft. It returns ErrNotFound or ErrNoDraft.
	DeleteDraft(ctx context.Context, workspaceID, id, by uuid.UUID) error
	// LockExternalIDs must come before a Replace that gives an external id.
	LockExternalIDs(ctx context.Context, workspaceID uuid.UUID) error
	// Upsert runs all, in order. A result with an error wrote nothing; the others are written.
	Upsert(ctx context.Context, workspaceID uuid.UUID, all []Upsert) ([]Upserted, error)
	// Move runs all transitions, in order. A transition whose result is ErrNotFound or ErrTransition changed nothing.
	Move(ctx context.Context, workspaceID uuid.UUID, all []Move) ([]Upserted, error)
	// AcceptImport stores a file that CheckImport accepted, to be processed later, and returns its id.
	AcceptImport(ctx context.Context, workspaceID, user uuid.UUID, content string) (uuid.UUID, error)
}

// A Date is a calendar day, without a time or a time zone.
type Date struct{ day time.Time }

// ErrDate is returned for a text that is not a day written YYYY-MM-DD.
var ErrDate = errors.New("not a day written YYYY-MM-DD")

// ParseDate parses YYYY-MM-DD, with years 0001 to 9999.
func ParseDate(text string) (Date, error) {
	day, err := time.Parse(time.DateOnly, text)
	if err != nil || day.Year() < 1 {
		return Date{}, ErrDate
	}
	return Date{day}, nil
}

// DateOf returns the day of t in UTC.
func DateOf(t time.Time) Date {
	year, month, day := t.UTC().Date()
	return Date{time.Date(year, month, day, 0, 0, 0, 0, time.UTC)}
}

// Time returns the start of the day in UTC.
func (d Date) Time() time.Time { return d.day }

// Before reports whether d is an earlier day than other.
func (d Date) Before(other Date) bool { return d.day.Before(other.day) }

func sameDay(a, b *Date) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.day.Equal(b.day)
}

// String formats the day as YYYY-MM-DD.
func (d Date) String() string { return d.day.Format(time.DateOnly) }

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

// Details are what describes a programme.
type Details struct {
	Name     string
	Summary  string
	Status   Status
	StartsOn *Date
	EndsOn   *Date
	// ExternalID is the id that the programme has in another system, or "". It is unique in the workspace.
	ExternalID string
	Row        int // in the file of an import, else 0
}

// Check returns rest.Problems, or nil. It enforces P1.
func (d Details) Check() error {
	problems := rest.Problems{}
	problems.Note(FieldName, displayname.Check(d.Name, MaxName))
	problems.Note(FieldSummary, checkSummary(d.Summary))
	if _, known := ParseStatus(string(d.Status)); !known {
		problems[FieldStatus] = StatusMessage
	}
	problems.Note(FieldEndsOn, checkDays(d.StartsOn, d.EndsOn))
	if d.ExternalID != "" {
		problems.Note(FieldExternalID, CheckExternalID(d.ExternalID))
	}
	return problems.OrNil()
}

func checkDays(startsOn, endsOn *Date) string {
	if startsOn != nil && endsOn != nil && endsOn.Before(*startsOn) {
		return "A programme cannot end before it starts."
	}
	return ""
}

// Messages that several readers of fields share.
const (
	StatusMessage = "Must be draft, active, completed or archived."
	DateMessage   = "Must be a date in the format YYYY-MM-DD."
)

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

// Check returns the rest.Problems that can be found without the programme, or nil.
func (c Change) Check() error { return c.problems().OrNil() }

func (c Change) problems() rest.Problems {
	problems := rest.Problems{}
	if c.Name != nil {
		problems.Note(FieldName, displayname.Check(*c.Name, MaxName))
	}
	if c.Summary != nil {
		problems.Note(FieldSummary, checkSummary(*c.Summary))
	}
	if c.ExternalID != nil && *c.ExternalID != "" {
		problems.Note(FieldExternalID, CheckExternalID(*c.ExternalID))
	}
	return problems
}

// Apply returns the changed programme, or rest.Problems. Unchanged fields are not checked: an older release may have
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
	problems.Note(FieldEndsOn, checkDays(p.StartsOn, p.EndsOn))
	return p, problems.OrNil()
}

// AppendRecord appends a programme in its API form (contract, section 6): id, name, summary, status, startsOn and
// endsOn (YYYY-MM-DD or null), createdAt and updatedAt (RFC 3339, UTC, with six decimals), and externalId if it
// has one.
//
// It is written by hand because a page has up to 200 records: encoding/json took a quarter of the service's time in
// BenchmarkList, and 2.3 times as long as this. FuzzRecord checks that the output is byte-identical.
func AppendRecord(b []byte, p Programme) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, p.ID.String()...)
	b = append(b, `","name":`...)
	b = appendText(b, p.Name)
	b = append(b, `,"summary":`...)
	b = appendText(b, p.Summary)
	b = append(b, `,"status":`...)
	b = appendText(b, string(p.Status))
	b = append(b, `,"startsOn":`...)
	b = appendDay(b, p.StartsOn)
	b = append(b, `,"endsOn":`...)
	b = appendDay(b, p.EndsOn)
	b = append(b, `,"createdAt":"`...)
	b = rest.AppendTime(b, p.CreatedAt)
	b = append(b, `","updatedAt":"`...)
	b = rest.AppendTime(b, p.UpdatedAt)
	b = append(b, '"')
	if p.ExternalID != "" {
		b = append(b, `,"externalId":`...)
		b = appendText(b, p.ExternalID)
	}
	return append(b, '}')
}

func appendDay(b []byte, d *Date) []byte {
	if d == nil {
		return append(b, "null"...)
	}
	b = append(b, '"')
	b = d.Time().AppendFormat(b, time.DateOnly)
	return append(b, '"')
}

// appendText appends printable ASCII directly, which most text is, and leaves other text to package web.
func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			encoded, _ := web.EncodeJSON(text) // encoding a string cannot fail
			return append(b, encoded...)
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}
