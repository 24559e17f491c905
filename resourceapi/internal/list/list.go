// Package list reads which page of a list a request selects, and seals the cursors that continue a list.
//
// Every list is in the order of creation, newest first, ties by id (spec 2.4; contract, section 6).
package list

import (
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/jsontime"
	"github.com/almonerhq/almoner/shared/seal"
)

// A Position is the position of a record in its list.
type Position struct {
	CreatedAt time.Time
	ID        uuid.UUID
	Until     time.Time // the End.Until of the first page
}

// A Range selects one page of a list.
type Range struct {
	List   string    // name of the list, its filter included; passed to Cursors.Seal
	After  *Position // nil for the first page
	Limit  int       // 1 to MaxLimit
	Fields []string  // members of the records to return; nil for all
	Filter
}

// A Filter narrows a list. The zero value matches every record.
type Filter struct {
	UpdatedSince  time.Time // created or changed at this time or later
	Status        string
	CreatedSince  time.Time // created at this time or later
	CreatedBefore time.Time
}

// An End describes one page without its records.
type End struct {
	More bool // more may follow
	// Until is the newest time that could be read with the first page of a list with UpdatedSince, and zero in other
	// lists. Later changes are left out of the following pages.
	Until time.Time
}

var errCursor = errors.New("not a cursor of this list")

// Cursors seals and opens the cursors that continue a list. It is safe for concurrent use.
type Cursors struct{ box *seal.Box }

// NewCursors derives the cursor key from the service's keys.
func NewCursors(keys seal.Keys) (*Cursors, error) {
	box, err := seal.NewBox(keys, "engage cursor") // the lists of Engage were the first
	if err != nil {
		return nil, err
	}
	return &Cursors{box}, nil
}

const positionLength = 8 + 16

// Seal returns the cursor that continues the list after the position. list names the list and its workspace.
func (c *Cursors) Seal(list string, position Position) string {
	content := binary.BigEndian.AppendUint64(nil, uint64(position.CreatedAt.UnixMicro()))
	content = append(content, position.ID[:]...)
	if !position.Until.IsZero() {
		list = untilPrefix(position.Until) + list
	}
	return c.box.Seal(append(content, list...))
}

// untilPrefix precedes the name of a list with UpdatedSince in a cursor.
func untilPrefix(until time.Time) string { return jsontime.Format(until) + " " }

func (c *Cursors) open(r Range, text string) (Position, error) {
	content, err := c.box.Open(text)
	if err != nil || len(content) < positionLength {
		return Position{}, errCursor
	}
	micros := int64(binary.BigEndian.Uint64(content))
	position := Position{CreatedAt: time.UnixMicro(micros).UTC(), ID: uuid.UUID(content[8:positionLength])}
	list := string(content[positionLength:])
	if !r.UpdatedSince.IsZero() {
		until, rest, _ := strings.Cut(list, " ")
		if position.Until, err = time.Parse(jsontime.Layout, until); err != nil {
			return Position{}, errCursor
		}
		list = rest
	}
	if list != r.List {
		return Position{}, errCursor
	}
	return position, nil
}

// ReadRange parses cursor, limit, fields and the filters in a query string. Each may appear at most once; other
// parameters are ignored. fields are the members of the records. The error is an invalid.Fields.
func ReadRange(raw, list string, cursors *Cursors, fields []string, filters Filters) (Range, error) {
	values, problems := ReadParameters(raw, append([]string{"cursor", "limit", "fields"}, filters.Names()...)...)
	r := Range{
		List:   list,
		Limit:  ReadLimit(values, problems),
		Fields: ReadFields(values, problems, fields),
		Filter: filters.read(values, problems),
	}
	r.List += r.Filter.suffix()
	// A cursor is bound to its filter, so it is opened only if the filter is valid.
	if text, given := values["cursor"]; given && len(problems) == 0 {
		position, err := cursors.open(r, text)
		if err != nil {
			problems["cursor"] = "Must be a meta.nextCursor of the same list."
		}
		r.After = &position
	}
	return r, problems.OrNil()
}

// ReadFilter parses the filters of a query string, like ReadRange.
func ReadFilter(raw string, filters Filters) (Filter, error) {
	values, problems := ReadParameters(raw, filters.Names()...)
	f := filters.read(values, problems)
	return f, problems.OrNil()
}
