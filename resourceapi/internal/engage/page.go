package engage

import (
	"encoding/binary"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/jsontime"
	"github.com/almonerhq/almoner/shared/seal"
)

// Page sizes of every list (spec 8).
const (
	DefaultLimit = 50
	MaxLimit     = 200
)

// A Place is the position of a record in its list: newest first, ties ordered by id.
type Place struct {
	CreatedAt time.Time
	ID        uuid.UUID
	Until     time.Time // in a list with UpdatedSince, the store's value of the first page
}

// A Range selects one page of a list.
type Range struct {
	List         string    // name of the list, its filter included; passed to Cursors.Seal
	After        *Place    // nil for the first page
	Limit        int       // 1 to MaxLimit
	UpdatedSince time.Time // created or changed at this time or later; zero matches all
}

var errCursor = errors.New("not a cursor of this list")

// Cursors seals and opens the cursors that continue a list. It is safe for concurrent use.
type Cursors struct{ box *seal.Box }

// NewCursors derives the cursor key from the service's keys.
func NewCursors(keys seal.Keys) (*Cursors, error) {
	box, err := seal.NewBox(keys, "engage cursor")
	if err != nil {
		return nil, err
	}
	return &Cursors{box}, nil
}

const placeLength = 8 + 16

// Seal returns the cursor that continues the list after the place. list names the list and its workspace.
func (c *Cursors) Seal(list string, place Place) string {
	content := binary.BigEndian.AppendUint64(nil, uint64(place.CreatedAt.UnixMicro()))
	content = append(content, place.ID[:]...)
	if !place.Until.IsZero() {
		list = untilPrefix(place.Until) + list
	}
	return c.box.Seal(append(content, list...))
}

// untilPrefix precedes the name of a list with UpdatedSince in a cursor.
func untilPrefix(until time.Time) string { return jsontime.Format(until) + " " }

func (c *Cursors) open(r Range, text string) (Place, error) {
	content, err := c.box.Open(text)
	if err != nil || len(content) < placeLength {
		return Place{}, errCursor
	}
	micros := int64(binary.BigEndian.Uint64(content))
	place := Place{CreatedAt: time.UnixMicro(micros).UTC(), ID: uuid.UUID(content[8:placeLength])}
	list := string(content[placeLength:])
	if !r.UpdatedSince.IsZero() {
		until, rest, _ := strings.Cut(list, " ")
		if place.Until, err = time.Parse(jsontime.Layout, until); err != nil {
			return Place{}, errCursor
		}
		list = rest
	}
	if list != r.List {
		return Place{}, errCursor
	}
	return place, nil
}

// ReadRange parses cursor, limit and the further parameters, which are updatedSince or none, of a query string. Each
// may appear at most once; others are ignored. It returns Problems.
func ReadRange(raw, list string, cursors *Cursors, further ...string) (Range, error) {
	r, problems := Range{List: list, Limit: DefaultLimit}, Problems{}
	known := append([]string{"cursor", "limit"}, further...)
	values := map[string]string{}
	for pair := range strings.SplitSeq(raw, "&") {
		key, value, _ := strings.Cut(pair, "=")
		name, keyErr := url.QueryUnescape(key)
		if keyErr != nil || !slices.Contains(known, name) {
			continue
		}
		text, err := url.QueryUnescape(value)
		if err != nil {
			problems[name] = "Must be URL-encoded."
		}
		if _, twice := values[name]; twice {
			problems[name] = "Must be sent only once."
		}
		values[name] = text
	}
	if text, given := values["limit"]; given {
		if r.Limit = readLimit(text); r.Limit == 0 {
			problems["limit"] = "Must be an integer of at least 1. Values over 200 count as 200."
		}
	}
	if text, given := values["updatedSince"]; given {
		since, err := jsontime.Parse(text)
		if err != nil {
			problems["updatedSince"] = jsontime.Message
		}
		r.UpdatedSince, r.List = since, list+" since "+jsontime.Format(since)
	}
	// A cursor is bound to its filter, so it is opened only if the filter is valid.
	if text, given := values["cursor"]; given && len(problems) == 0 {
		place, err := cursors.open(r, text)
		if err != nil {
			problems["cursor"] = "Must be a meta.nextCursor of the same list."
		}
		r.After = &place
	}
	return r, problems.orNil()
}

// readLimit parses decimal digits and returns 0 if text is invalid. Larger numbers, even beyond int, count as
// MaxLimit.
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
