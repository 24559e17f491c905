package programme

import (
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/jsontime"
)

// Page sizes (spec 8).
const (
	DefaultLimit = 50
	MaxLimit     = 200
)

// MaxSearch bounds the text that is searched for, in characters.
const MaxSearch = 400

// A Query asks for one page of a workspace's programmes, newest first.
type Query struct {
	WorkspaceID uuid.UUID
	Filter      Filter
	After       *Position // nil: from the start
	Limit       int       // 1 to MaxLimit
	// Into makes the Sink of the page. It may be called more than once, and at the same time: one page is read twice
	// where that may be faster. nil: Page.Programmes has the programmes.
	Into func() Sink
}

// A Sink takes the programmes of a page while they are read.
type Sink interface {
	// Take reports whether there was room. A programme without room begins the next page.
	Take(Programme) bool
}

// A Filter narrows the list. The zero value lets everything through.
type Filter struct {
	Status       Status
	Search       string    // a part of name or summary, in any case; "": any
	UpdatedSince time.Time // created or changed then or later; zero: at any time
}

// A Position is the place of a programme in the order of the list (P3).
type Position struct {
	CreatedAt time.Time
	ID        uuid.UUID
	Until     time.Time // the Page.Until of the first page
}

// A Page is what a Query found.
type Page struct {
	Programmes []Programme // where the Query makes no Sink
	Sink       Sink        // which took the programmes, where the Query makes one
	More       bool        // more may follow
	// Until is the newest time that could be read with the first page of a list with UpdatedSince; zero in other lists.
	// What changes later is left out of the pages that follow (P6).
	Until time.Time
}

// ReadQuery reads the query string of GET /v1/programmes/programmes: cursor, limit, status, q and updatedSince, each at
// most once; others are ignored. It returns Problems (spec 4.1; contract, section 6).
func ReadQuery(raw string, workspaceID uuid.UUID, cursors *Cursors) (Query, error) {
	values, problems := readParameters(raw, "cursor", "limit", "status", "q", "updatedSince")
	query := Query{WorkspaceID: workspaceID, Limit: DefaultLimit}
	if text, given := values["limit"]; given {
		limit, ok := readLimit(text)
		if !ok {
			problems["limit"] = "Must be a whole number from 1; more than 200 counts as 200."
		}
		query.Limit = limit
	}
	if text, given := values["status"]; given {
		status, ok := ParseStatus(text)
		if !ok {
			problems["status"] = StatusMessage
		}
		query.Filter.Status = status
	}
	if text := values["q"]; !utf8.ValidString(text) || strings.ContainsRune(text, 0) ||
		utf8.RuneCountInString(text) > MaxSearch {
		problems["q"] = "Must be text of at most 400 characters."
	} else {
		query.Filter.Search = text
	}
	if text, given := values["updatedSince"]; given {
		since, err := jsontime.Parse(text)
		if err != nil {
			problems["updatedSince"] = jsontime.Message
		}
		query.Filter.UpdatedSince = since
	}
	// A cursor is judged by the filters that stand beside it, so only once those are known to be good.
	if text, given := values["cursor"]; given && len(problems) == 0 {
		position, err := cursors.Open(text, workspaceID, query.Filter)
		if err != nil {
			problems["cursor"] = "Must be the meta.nextCursor of an answer to the same list: same workspace, same " +
				"filters."
		}
		query.After = &position
	}
	return query, problems.orNil()
}

// readLimit reads a whole number in decimal digits. One too long for an int is over MaxLimit all the same.
func readLimit(text string) (int, bool) {
	limit := 0
	for _, digit := range []byte(text) {
		if digit < '0' || digit > '9' {
			return 0, false
		}
		limit = min(limit*10+int(digit-'0'), MaxLimit)
	}
	return limit, limit > 0
}

// readParameters picks the named parameters out of a query string. net/url's own reader silently drops what it cannot
// read, which would turn a wrong filter into none; here it is a problem, as is a name that stands twice.
func readParameters(raw string, names ...string) (map[string]string, Problems) {
	values, problems := map[string]string{}, Problems{}
	known := map[string]bool{}
	for _, name := range names {
		known[name] = true
	}
	for pair := range strings.SplitSeq(raw, "&") {
		key, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(key)
		if err != nil || !known[name] {
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
	return values, problems
}
