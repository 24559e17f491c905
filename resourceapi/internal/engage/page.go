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

// Page sizes, those of every list (spec 8).
const (
	DefaultLimit = 50
	MaxLimit     = 200
)

// A Place is where a record stands in the order of its list: newest first, ties by id.
type Place struct {
	CreatedAt time.Time
	ID        uuid.UUID
	Until     time.Time // in a list with UpdatedSince, what the store gave with the first page
}

// A Range asks for one page of a list.
type Range struct {
	List         string    // names the list, its filter included; what Cursors.Seal takes
	After        *Place    // nil: from the start
	Limit        int       // 1 to MaxLimit
	UpdatedSince time.Time // created or changed then or later; zero: at any time
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
	if !place.Until.IsZero() {
		list = untilPrefix(place.Until) + list
	}
	return c.box.Seal(append(content, list...))
}

// untilPrefix stands before the name of a list with UpdatedSince, in a cursor.
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

// ReadRange reads cursor and limit from a query string, and further parameters, which are updatedSince or none. Each is
// given at most once; others are ignored. It returns Problems.
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
			problems[name] = "Is not encoded as a query parameter must be."
		}
		if _, twice := values[name]; twice {
			problems[name] = "Must be given once."
		}
		values[name] = text
	}
	if text, given := values["limit"]; given {
		if r.Limit = readLimit(text); r.Limit == 0 {
			problems["limit"] = "Must be a whole number from 1; more than 200 counts as 200."
		}
	}
	if text, given := values["updatedSince"]; given {
		since, err := jsontime.Parse(text)
		if err != nil {
			problems["updatedSince"] = jsontime.Message
		}
		r.UpdatedSince, r.List = since, list+" since "+jsontime.Format(since)
	}
	// A cursor is judged by the filter that stands beside it, so only once that is known to be good.
	if text, given := values["cursor"]; given && len(problems) == 0 {
		place, err := cursors.open(r, text)
		if err != nil {
			problems["cursor"] = "Must be the meta.nextCursor of an answer to the same list."
		}
		r.After = &place
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
