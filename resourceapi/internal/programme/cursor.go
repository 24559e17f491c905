package programme

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/seal"
)

// ErrCursor says that a text is not a cursor of this list.
var ErrCursor = errors.New("not a cursor of this list")

// Cursors makes and reads the opaque texts that continue a list. It is safe for concurrent use.
type Cursors struct{ box *seal.Box }

// NewCursors derives the key of cursors from the service's keys.
func NewCursors(keys seal.Keys) (*Cursors, error) {
	box, err := seal.NewBox(keys, "programmes cursor")
	if err != nil {
		return nil, err
	}
	return &Cursors{box}, nil
}

// cursorLength is that of the content: which list, then the moment in microseconds, then the id.
const (
	listLength   = sha256.Size
	cursorLength = listLength + 8 + 16
	maxCursor    = 256 // characters of the sealed text; longer ones are not worth opening
)

// Seal returns the cursor that continues the list behind position.
func (c *Cursors) Seal(position Position, tenant uuid.UUID, filter Filter) string {
	content := make([]byte, 0, cursorLength)
	list := listOf(tenant, filter)
	content = append(content, list[:]...)
	content = binary.BigEndian.AppendUint64(content, uint64(position.CreatedAt.UnixMicro()))
	content = append(content, position.ID[:]...)
	return c.box.Seal(content)
}

// Open returns the position, or ErrCursor when the text was not made here for this very list (P4).
func (c *Cursors) Open(text string, tenant uuid.UUID, filter Filter) (Position, error) {
	if len(text) > maxCursor {
		return Position{}, ErrCursor
	}
	content, err := c.box.Open(text)
	if err != nil || len(content) != cursorLength {
		return Position{}, ErrCursor
	}
	if listOf(tenant, filter) != [listLength]byte(content[:listLength]) {
		return Position{}, ErrCursor
	}
	micros := int64(binary.BigEndian.Uint64(content[listLength:]))
	return Position{CreatedAt: time.UnixMicro(micros).UTC(), ID: uuid.UUID(content[listLength+8:])}, nil
}

// listOf names a list by its workspace and filters. The status has no zero byte in it, so no two lists share a name.
func listOf(tenant uuid.UUID, filter Filter) [listLength]byte {
	return sha256.Sum256([]byte(string(tenant[:]) + string(filter.Status) + "\x00" + filter.Search))
}
