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
	"crypto/sha256"
	"encoding/binary"
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

// transitions are the statuses to which each status may change (P2).
var transitions = map[Status][]Status{Draft: {Active, Archived}, Active: {Completed}, Completed: {Archived}}

// CanBecome reports whether a programme may move from status s to the other.
func (s Status) CanBecome(to Status) bool { return slices.Contains(transitions[s], to) }

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

// An Importer is who sends an import: a user with a credential, whose usage counts the records of the import.
type Importer struct {
	User       uuid.UUID
	Credential uuid.UUID
	Personal   bool // Credential is a personal access token
}

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
	Upsert(ctx context.Context, workspaceID uuid.UUID, all []Upsert) ([]Result, error)
	// Move runs all transitions, in order. A transition whose result is ErrNotFound or ErrTransition changed nothing.
	Move(ctx context.Context, workspaceID uuid.UUID, all []Move) ([]Result, error)
	// AcceptImport stores a file that CheckImport accepted, to be processed later, and returns its id.
	AcceptImport(ctx context.Context, workspaceID uuid.UUID, by Importer, content string) (uuid.UUID, error)
}

// A Date is a calendar day, without a time or a time zone, written YYYY-MM-DD so that days compare as texts. "" is no
// day.
type Date string

// ParseDate parses YYYY-MM-DD, with years 0001 to 9999.
func ParseDate(text string) (Date, bool) {
	day, err := time.Parse(time.DateOnly, text)
	if err != nil || day.Year() < 1 {
		return "", false
	}
	return DateOf(day), true
}

// DateOf returns the day of t in UTC.
func DateOf(t time.Time) Date { return Date(t.UTC().Format(time.DateOnly)) }

// Limits of the texts, in characters.
const (
	MaxName    = 200
	MaxSummary = 5000
)

// Names of the fields in JSON and in the header of an import.
const (
	FieldName       = "name"
	FieldSummary    = "summary"
	FieldStatus     = "status"
	FieldStartsOn   = "startsOn"
	FieldEndsOn     = "endsOn"
	FieldExternalID = "externalId" // the id that a programme has in another system
)

// Fields returns the members of a programme in its API form, in order.
func Fields() []string {
	return []string{"id", "name", "summary", "status", "startsOn", "endsOn", "createdAt", "updatedAt", FieldExternalID}
}

// WritableFields are the Fields that the body of a request and the header of an import may have. The service sets the
// others.
var WritableFields = []string{FieldName, FieldSummary, FieldStatus, FieldStartsOn, FieldEndsOn, FieldExternalID}

// Details are what describes a programme.
type Details struct {
	Name     string
	Summary  string
	Status   Status
	StartsOn Date
	EndsOn   Date
	// ExternalID is the id that the programme has in another system, or "". It is unique in the workspace.
	ExternalID string
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

func checkDays(startsOn, endsOn Date) string {
	if startsOn != "" && endsOn != "" && endsOn < startsOn {
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
	StartsOn *Date // "" removes it, as for EndsOn and ExternalID
	EndsOn   *Date

	ExternalID *string
}

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
	set(&p.Name, c.Name)
	set(&p.Summary, c.Summary)
	set(&p.StartsOn, c.StartsOn)
	set(&p.EndsOn, c.EndsOn)
	set(&p.ExternalID, c.ExternalID)
	problems := c.problems()
	problems.Note(FieldEndsOn, checkDays(p.StartsOn, p.EndsOn))
	return p, problems.OrNil()
}

func set[T any](field, changed *T) {
	if changed != nil {
		*field = *changed
	}
}

// AppendRecord appends a programme in its API form (contract, section 6): id, name, summary, status, startsOn and
// endsOn (YYYY-MM-DD or null), createdAt and updatedAt (RFC 3339, UTC, with six decimals), and externalId if it
// has one.
//
// It is written by hand because a page has up to 200 records: encoding/json took a quarter of the service's time for
// lists of 50, and 2.3 times as long as this. FuzzRecord checks that the output is byte-identical.
func AppendRecord(b []byte, p Programme) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, p.ID.String()...)
	b = appendText(append(b, `","name":`...), p.Name)
	b = appendText(append(b, `,"summary":`...), p.Summary)
	b = appendText(append(b, `,"status":`...), string(p.Status))
	b = appendDay(append(b, `,"startsOn":`...), p.StartsOn)
	b = appendDay(append(b, `,"endsOn":`...), p.EndsOn)
	b = rest.AppendTime(append(b, `,"createdAt":"`...), p.CreatedAt)
	b = rest.AppendTime(append(b, `","updatedAt":"`...), p.UpdatedAt)
	b = append(b, '"')
	if p.ExternalID != "" {
		b = appendText(append(b, `,"externalId":`...), p.ExternalID)
	}
	return append(b, '}')
}

func appendDay(b []byte, d Date) []byte {
	if d == "" {
		return append(b, "null"...)
	}
	return appendText(b, string(d))
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

// MaxSearch is the maximum length of a search text, in characters.
const MaxSearch = 400

// A Query selects one page of a workspace's programmes, newest first.
type Query struct {
	WorkspaceID uuid.UUID
	Filter      Filter
	After       *rest.Position // nil for the first page
	Limit       int            // 1 to rest.MaxLimit
	Fields      []string       // members of the records to return; nil for all
	// Into returns the Sink of the page. It may be called more than once and concurrently, because a page may be read
	// twice in parallel.
	Into func() Sink
}

// A Sink receives the programmes of a page as they are read.
type Sink interface {
	// Take reports whether there was room. A programme without room begins the next page.
	Take(Programme) bool
}

// A Filter narrows the list. The zero value matches every programme.
type Filter struct {
	Status       Status
	Search       string    // part of name or summary, case-insensitive; empty matches all
	ExternalID   string    // empty matches all
	UpdatedSince time.Time // created or changed at this time or later; zero matches all
}

// A Page is the result of a Query.
type Page struct {
	Sink     Sink // received the programmes
	rest.End      // End.Until serves P6
}

// Parameters returns the names of the query parameters of the list.
func Parameters() []string {
	return []string{"cursor", "limit", "fields", "status", "q", "updatedSince", "externalId"}
}

// ReadQuery parses the Parameters in the query string of GET /v1/programmes/programmes, each at most once. Other
// parameters are ignored. It returns rest.Problems (spec 4.1; contract, section 6).
func ReadQuery(raw string, workspaceID uuid.UUID, cursors *rest.Cursors) (Query, error) {
	p := rest.ReadParameters(raw, Parameters()...)
	query := Query{WorkspaceID: workspaceID, Limit: p.Limit(), Fields: p.Fields(Fields())}
	if text, given := p.Text("status"); given {
		status, ok := ParseStatus(text)
		if !ok {
			p.Problems["status"] = StatusMessage
		}
		query.Filter.Status = status
	}
	if text, _ := p.Text("q"); !utf8.ValidString(text) || strings.ContainsRune(text, 0) ||
		utf8.RuneCountInString(text) > MaxSearch {
		p.Problems["q"] = "Must be text of at most 400 characters."
	} else {
		query.Filter.Search = text
	}
	query.Filter.UpdatedSince = p.Time("updatedSince")
	if text, given := p.Text(FieldExternalID); given {
		p.Problems.Note(FieldExternalID, CheckExternalID(text))
		query.Filter.ExternalID = text
	}
	// A cursor is bound to its filters, so it is opened only if they are valid.
	if text, given := p.Text("cursor"); given && len(p.Problems) == 0 {
		position, ok := OpenCursor(cursors, text, workspaceID, query.Filter)
		if !ok {
			p.Problems["cursor"] = "Must be a meta.nextCursor of the same list, with the same workspace and filters."
		}
		query.After = &position
	}
	return query, p.Problems.OrNil()
}

// CursorPurpose is the purpose of the Cursors of the list of programmes.
const CursorPurpose = "programmes cursor"

// cursorLength is the length of the content: the hash of the list, the time in microseconds, the id. In a list with
// UpdatedSince, Position.Until in microseconds follows.
const (
	listLength   = sha256.Size
	cursorLength = listLength + rest.PositionLength
	maxCursor    = 256 // characters of the sealed text; longer ones are not opened
)

// SealCursor returns the cursor that continues the list after position.
func SealCursor(c *rest.Cursors, position rest.Position, workspaceID uuid.UUID, filter Filter) string {
	name := listOf(workspaceID, filter)
	content := position.Append(name[:])
	if !filter.UpdatedSince.IsZero() {
		content = binary.BigEndian.AppendUint64(content, uint64(position.Until.UnixMicro()))
	}
	return c.Seal(content)
}

// OpenCursor returns the position, and false if the cursor was not sealed here for this list (P4).
func OpenCursor(
	c *rest.Cursors, text string, workspaceID uuid.UUID, filter Filter,
) (position rest.Position, ok bool) {
	if len(text) > maxCursor {
		return position, false
	}
	length := cursorLength
	if !filter.UpdatedSince.IsZero() {
		length += 8
	}
	content, err := c.Open(text)
	if err != nil || len(content) != length ||
		listOf(workspaceID, filter) != [listLength]byte(content[:listLength]) {
		return position, false
	}
	position = rest.ParsePosition(content[listLength:])
	if length > cursorLength {
		position.Until = rest.ParseMicros(content[cursorLength:])
	}
	return position, true
}

// listOf hashes the workspace and filters of a list. Neither the status nor a search contains a zero byte, so
// different lists have different names.
func listOf(workspaceID uuid.UUID, filter Filter) [listLength]byte {
	name := string(workspaceID[:]) + string(filter.Status) + "\x00" + filter.Search
	if !filter.UpdatedSince.IsZero() {
		name += "\x00" + filter.UpdatedSince.UTC().Format(time.RFC3339Nano)
	}
	if filter.ExternalID != "" {
		name += "\x00external id\x00" + filter.ExternalID
	}
	return sha256.Sum256([]byte(name))
}
