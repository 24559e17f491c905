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

// MaxSearch is the maximum length of a search text, in characters.
const MaxSearch = 400

// A Query selects one page of a workspace's programmes, newest first.
type Query struct {
	WorkspaceID uuid.UUID
	Filter      Filter
	After       *Position // nil for the first page
	Limit       int       // 1 to MaxLimit
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
	UpdatedSince time.Time // created or changed at this time or later; zero matches all
}

// A Position is the position of a programme in the list (P3).
type Position struct {
	CreatedAt time.Time
	ID        uuid.UUID
	Until     time.Time // the Page.Until of the first page
}

// A Page is the result of a Query.
type Page struct {
	Programmes []Programme // set if Query.Into is nil
	Sink       Sink        // received the programmes if Query.Into is set
	More       bool        // more may follow
	// Until is the newest time that could be read with the first page of a list with UpdatedSince, and zero in other
	// lists. Later changes are left out of the following pages (P6).
	Until time.Time
}

// ReadQuery parses the query string of GET /v1/programmes/programmes: cursor, limit, status, q and updatedSince, each
// at most once. Other parameters are ignored. It returns Problems (spec 4.1; contract, section 6).
func ReadQuery(raw string, workspaceID uuid.UUID, cursors *Cursors) (Query, error) {
	values, problems := readParameters(raw, "cursor", "limit", "status", "q", "updatedSince")
	query := Query{WorkspaceID: workspaceID, Limit: DefaultLimit}
	if text, given := values["limit"]; given {
		limit, ok := readLimit(text)
		if !ok {
			problems["limit"] = "Must be an integer of at least 1. Values over 200 count as 200."
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
	// A cursor is bound to its filters, so it is opened only if they are valid.
	if text, given := values["cursor"]; given && len(problems) == 0 {
		position, err := cursors.Open(text, workspaceID, query.Filter)
		if err != nil {
			problems["cursor"] = "Must be a meta.nextCursor of the same list, with the same workspace and filters."
		}
		query.After = &position
	}
	return query, problems.orNil()
}

// readLimit parses decimal digits. Larger numbers, even beyond int, count as MaxLimit.
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

// readParameters extracts the named parameters of a query string. net/url silently drops what it cannot parse, which
// would remove an invalid filter; here that is a problem, and so is a repeated name.
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
			problems[name] = "Must be URL-encoded."
		}
		if _, twice := values[name]; twice {
			problems[name] = "Must be sent only once."
		}
		values[name] = text
	}
	return values, problems
}
