package rest

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/crypt/seal"
)

// Cursors seals and opens the cursors that continue lists. It is safe for concurrent use.
type Cursors struct{ *seal.Box }

// NewCursors derives the key of the cursors from the service's keys. Cursors of another purpose cannot be opened.
func NewCursors(keys seal.Keys, purpose string) (*Cursors, error) {
	box, err := seal.NewBox(keys, purpose)
	if err != nil {
		return nil, err
	}
	return &Cursors{box}, nil
}

// otherCursor is the message for a text that is not a cursor of the list.
const otherCursor = "Must be a meta.nextCursor of the same list."

// A Position is the position of a record in its list.
type Position struct {
	CreatedAt time.Time
	ID        uuid.UUID
	Until     time.Time // the End.Until of the first page
}

// PositionLength is the number of bytes that Append appends.
const PositionLength = 8 + 16

// Append appends the time, in microseconds, and the id.
func (p Position) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(p.CreatedAt.UnixMicro()))
	return append(b, p.ID[:]...)
}

// ParsePosition returns the position that Append appended.
func ParsePosition(content []byte) Position {
	return Position{CreatedAt: ParseMicros(content), ID: uuid.UUID(content[8:PositionLength])}
}

// ParseMicros returns the time in the first 8 bytes of content.
func ParseMicros(content []byte) time.Time {
	return time.UnixMicro(int64(binary.BigEndian.Uint64(content))).UTC()
}

// SealPosition returns the cursor that continues the list after the position. list names the list and its workspace.
func (c *Cursors) SealPosition(list string, position Position) string {
	content := position.Append(nil)
	if !position.Until.IsZero() { // in a list with UpdatedSince
		list = FormatTime(position.Until) + " " + list
	}
	return c.Seal(append(content, list...))
}

func (c *Cursors) open(r Range, text string) (position Position, ok bool) {
	content, err := c.Open(text)
	if err != nil || len(content) < PositionLength {
		return Position{}, false
	}
	position, list := ParsePosition(content), string(content[PositionLength:])
	if !r.UpdatedSince.IsZero() {
		until, name, _ := strings.Cut(list, " ")
		if position.Until, err = time.Parse(TimeLayout, until); err != nil {
			return Position{}, false
		}
		list = name
	}
	return position, list == r.List
}
