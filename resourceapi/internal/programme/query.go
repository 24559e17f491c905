package programme

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/rest"
)

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
	// twice in parallel. If nil, the programmes are in Page.Programmes.
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

// Fields returns the members of a programme in its API form, in order.
func Fields() []string {
	return []string{"id", "name", "summary", "status", "startsOn", "endsOn", "createdAt", "updatedAt", FieldExternalID}
}

// A Page is the result of a Query.
type Page struct {
	Programmes []Programme // set if Query.Into is nil
	Sink       Sink        // received the programmes if Query.Into is set
	rest.End               // End.Until serves P6
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
		position, err := OpenCursor(cursors, text, workspaceID, query.Filter)
		if err != nil {
			p.Problems["cursor"] = "Must be a meta.nextCursor of the same list, with the same workspace and filters."
		}
		query.After = &position
	}
	return query, p.Problems.OrNil()
}

// ErrCursor is returned for a text that is not a cursor of the list.
var ErrCursor = errors.New("not a cursor of this list")

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

// OpenCursor returns the position, or ErrCursor if the cursor was not sealed here for this list (P4).
func OpenCursor(c *rest.Cursors, text string, workspaceID uuid.UUID, filter Filter) (rest.Position, error) {
	if len(text) > maxCursor {
		return rest.Position{}, ErrCursor
	}
	length := cursorLength
	if !filter.UpdatedSince.IsZero() {
		length += 8
	}
	content, err := c.Open(text)
	if err != nil || len(content) != length {
		return rest.Position{}, ErrCursor
	}
	if listOf(workspaceID, filter) != [listLength]byte(content[:listLength]) {
		return rest.Position{}, ErrCursor
	}
	position := rest.ParsePosition(content[listLength:])
	if length > cursorLength {
		position.Until = rest.ParseMicros(content[cursorLength:])
	}
	return position, nil
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
