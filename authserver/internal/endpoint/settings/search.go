package settings

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/spelling"
)

// A Search is a submitted search form of a log.
type Search struct{ Request, Person, Application, Client, Since, Until string }

// maxWords bounds a field of the search.
const maxWords = 200

// ReadWords returns the search text of a parameter, or "" if it is too long or contains a zero byte.
func ReadWords(query url.Values, name string) string {
	text := spelling.Pasted(strings.ToValidUTF8(query.Get(name), ""))
	if len(text) > maxWords || strings.ContainsRune(text, 0) {
		return ""
	}
	return text
}

// ReadSearch reads the form. A field that cannot be searched for is empty.
func ReadSearch(query url.Values) Search {
	day := func(name string) string {
		if _, err := time.Parse(time.DateOnly, query.Get(name)); err != nil {
			return ""
		}
		return query.Get(name)
	}
	client, err := identity.Parse(query.Get("client"))
	id := ""
	if err == nil {
		id = client.String()
	}
	return Search{
		Request:     ReadWords(query, "request"),
		Person:      ReadWords(query, "person"),
		Application: ReadWords(query, "application"),
		Client:      id,
		Since:       day("since"),
		Until:       day("until"),
	}
}

// Problem returns the error of the field “To”, or "".
func (s Search) Problem() string {
	if s.Since != "" && s.Until != "" && s.Since > s.Until { // as text, since both are YYYY-MM-DD
		return "“From” must not be later than “To”."
	}
	return ""
}

// Status returns the status of a page with the search.
func (s Search) Status() int {
	if s.Problem() != "" {
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// Query returns the search as a part of a query, with its separator.
func (s Search) Query() string {
	query := url.Values{}
	for name, text := range map[string]string{
		"request":     s.Request,
		"person":      s.Person,
		"application": s.Application,
		"client":      s.Client,
		"since":       s.Since,
		"until":       s.Until,
	} {
		if text != "" {
			query.Set(name, text)
		}
	}
	if len(query) == 0 {
		return ""
	}
	return "&" + query.Encode()
}

// Of returns the search for the store. The last day is included.
func (s Search) Of() audit.Search {
	out := audit.Search{RequestID: s.Request, Person: s.Person, Application: s.Application}
	out.Client, _ = identity.Parse(s.Client)          // "" is the zero id
	out.Since, _ = time.Parse(time.DateOnly, s.Since) // "" is the zero time
	if until, err := time.Parse(time.DateOnly, s.Until); err == nil {
		out.Until = until.AddDate(0, 0, 1)
	}
	return out
}

// WriteMark returns a position in a log as a parameter of its page.
func WriteMark(m audit.Cursor) string {
	return url.QueryEscape(m.At.UTC().Format(time.RFC3339Nano) + "~" + m.ID.String())
}

// ReadMark parses a mark of WriteMark. Other text is the beginning of the log.
func ReadMark(text string) audit.Cursor {
	at, id, _ := strings.Cut(text, "~")
	moment, atErr := time.Parse(time.RFC3339Nano, at)
	entry, idErr := identity.Parse(id)
	if atErr != nil || idErr != nil {
		return audit.Cursor{}
	}
	return audit.Cursor{At: moment, ID: entry}
}
