package programme

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/seal"

	"github.com/almonerhq/almoner/resourceapi/internal/list"
)

// ErrCursor is returned for a text that is not a cursor of the list.
var ErrCursor = errors.New("not a cursor of this list")

// Cursors seals and opens the cursors that continue a list. It is safe for concurrent use.
type Cursors struct{ box *seal.Box }

// NewCursors derives the cursor key from the service's keys.
func NewCursors(keys seal.Keys) (*Cursors, error) {
	box, err := seal.NewBox(keys, "programmes cursor")
	if err != nil {
		return nil, err
	}
	return &Cursors{box}, nil
}

// cursorLength is the length of the content: the hash of the list, the time in microseconds, the id. In a list with
// UpdatedSince, Position.Until in microseconds follows.
const (
	listLength   = sha256.Size
	cursorLength = listLength + 8 + 16
	maxCursor    = 256 // characters of the sealed text; longer ones are not opened
)

// Seal returns the cursor that continues the list after position.
func (c *Cursors) Seal(position list.Position, workspaceID uuid.UUID, filter Filter) string {
	content := make([]byte, 0, cursorLength)
	name := listOf(workspaceID, filter)
	content = append(content, name[:]...)
	content = binary.BigEndian.AppendUint64(content, uint64(position.CreatedAt.UnixMicro()))
	content = append(content, position.ID[:]...)
	if !filter.UpdatedSince.IsZero() {
		content = binary.BigEndian.AppendUint64(content, uint64(position.Until.UnixMicro()))
	}
	return c.box.Seal(content)
}

// Open returns the position, or ErrCursor if the cursor was not sealed here for this list (P4).
func (c *Cursors) Open(text string, workspaceID uuid.UUID, filter Filter) (list.Position, error) {
	if len(text) > maxCursor {
		return list.Position{}, ErrCursor
	}
	length := cursorLength
	if !filter.UpdatedSince.IsZero() {
		length += 8
	}
	content, err := c.box.Open(text)
	if err != nil || len(content) != length {
		return list.Position{}, ErrCursor
	}
	if listOf(workspaceID, filter) != [listLength]byte(content[:listLength]) {
		return list.Position{}, ErrCursor
	}
	position := list.Position{
		CreatedAt: timeAt(content[listLength:]),
		ID:        uuid.UUID(content[listLength+8 : cursorLength]),
	}
	if length > cursorLength {
		position.Until = timeAt(content[cursorLength:])
	}
	return position, nil
}

func timeAt(content []byte) time.Time {
	return time.UnixMicro(int64(binary.BigEndian.Uint64(content))).UTC()
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
