package engage

import (
	"encoding/binary"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/seal"
)

// Page sizes, those of every list (spec 8).
const (
	DefaultLimit = 50
	MaxLimit     = 200
)

// A Place is where a record stands in the order of its list: newest first, ties by id.
type Place struct {
	CreatedAt time.Time
	ID        uuid.UUID
}

// A Range asks for one page of a list.
type Range struct {
	After *Place // nil: from the start
	Limit int    // 1 to MaxLimit
}

var errCursor = errors.New("not a cursor of this list")

// Cursors makes and reads the opaque texts that continue a list. It is safe for concurrent use.
type Cursors struct{ box *seal.Box }

// NewCursors derives the key of cursors from the service's keys.
func NewCursors(keys seal.Keys) (*Cursors, error) {
	box, err := seal.NewBox(keys, "engage cursor")
	if err != nil {
		return nil, err
	}
	return &Cursors{box}, nil
}

const placeLength = 8 + 16

// Seal returns the cursor that continues the list behind the place. list names the list and the workspace it is of.
func (c *Cursors) Seal(list string, place Place) string {
	content := binary.BigEndian.AppendUint64(nil, uint64(place.CreatedAt.UnixMicro()))
	content = append(content, place.ID[:]...)
	return c.box.Seal(append(content, list...))
}

func (c *Cursors) open(list, text string) (Place, error) {
	content, err := c.box.Open(text)
	if err != nil || len(content) < placeLength || string(content[placeLength:]) != list {
		return Place{}, errCursor
	}
	micros := int64(binary.BigEndian.Uint64(content))
	return Place{time.UnixMicro(micros).UTC(), uuid.UUID(content[8:placeLength])}, nil
}

// ReadRange reads cursor and limit from a query string, each at most once; others are ignored. It returns Problems.
func ReadRange(raw, list string, cursors *Cursors) (Range, error) {
	r, problems := Range{Limit: DefaultLimit}, Problems{}
	seen := map[string]bool{}
	for pair := range strings.SplitSeq(raw, "&") {
		key, value, _ := strings.Cut(pair, "=")
		name, keyErr := url.QueryUnescape(key)
		if keyErr != nil || (name != "cursor" && name != "limit") {
			continue
		}
		text, err := url.QueryUnescape(value)
		switch {
		case err != nil:
			problems[name] = "Is not encoded as a query parameter must be."
		case seen[name]:
			problems[name] = "Must be given once."
		case name == "limit":
			r.Limit = readLimit(text)
			if r.Limit == 0 {
				problems[name] = "Must be a whole number from 1; more than 200 counts as 200."
			}
		default:
			place, err := cursors.open(list, text)
			if err != nil {
				problems[name] = "Must be the meta.nextCursor of an answer to the same list."
			}
			r.After = &place
		}
		seen[name] = true
	}
	return r, problems.orNil()
}

// readLimit reads decimal digits; 0 stands for what is no limit. One too long for an int is over MaxLimit all the same.
func readLimit(text string) int {
	limit := 0
	for _, digit := range []byte(text) {
		if digit < '0' || digit > '9' {
			return 0
		}
		limit = min(limit*10+int(digit-'0'), MaxLimit)
	}
	return limit
}
