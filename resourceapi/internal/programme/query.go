package programme

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/jsontime"

	"github.com/almonerhq/almoner/resourceapi/internal/list"
)

// MaxSearch is the maximum length of a search text, in characters.
const MaxSearch = 400

// A Query selects one page of a workspace's programmes, newest first.
type Query struct {
	WorkspaceID uuid.UUID
	Filter      Filter
	After       *list.Position // nil for the first page
	Limit       int            // 1 to list.MaxLimit
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
	list.End               // End.Until serves P6
}

// Parameters returns the names of the query parameters of the list.
func Parameters() []string {
	return []string{"cursor", "limit", "fields", "status", "q", "updatedSince", "externalId"}
}

// ReadQuery parses the Parameters in the query string of GET /v1/programmes/programmes, each at most once. Other
// parameters are ignored. It returns invalid.Fields (spec 4.1; contract, section 6).
func ReadQuery(raw string, workspaceID uuid.UUID, cursors *Cursors) (Query, error) {
	values, problems := list.ReadParameters(raw, Parameters()...)
	query := Query{
		WorkspaceID: workspaceID,
		Limit:       list.ReadLimit(values, problems),
		Fields:      list.ReadFields(values, problems, Fields()),
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
	if text, given := values[FieldExternalID]; given {
		if message := CheckExternalID(text); message != "" {
			problems[FieldExternalID] = message
		}
		query.Filter.ExternalID = text
	}
	// A cursor is bound to its filters, so it is opened only if they are valid.
	if text, given := values["cursor"]; given && len(problems) == 0 {
		position, err := cursors.Open(text, workspaceID, query.Filter)
		if err != nil {
			problems["cursor"] = "Must be a meta.nextCursor of the same list, with the same workspace and filters."
		}
		query.After = &position
	}
	return query, problems.OrNil()
}
