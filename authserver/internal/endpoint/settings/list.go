package settings

import (
	"cmp"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/contract/spelling"
)

// pageSize is how many rows a page of a list has.
const pageSize = 25

// A listPage is the search and the page of a list.
type listPage struct {
	Of              string // what the rows are, such as "members"
	All             int    // rows without the search
	Found           int
	From, To        int    // of the page, from 1
	Words           string // search text, or ""
	Previous, Later string // paths of the other pages, or ""
}

// A listing selects the page of a list by the parameters of the URL.
type listing[Row any] struct {
	Of        string // what the rows are
	Path      string // of the page, which may have a query
	Parameter string // of the number of the page; "page" if empty
	Size      int    // of a page; pageSize if 0

	First   func(Row) bool                   // reports whether a row comes first, or nil
	Matches func(row Row, words string) bool // reports whether the search finds a row; nil if the list has no search
}

// Select returns the rows of the page that the URL selects, and describes it.
func (l listing[Row]) Select(query url.Values, rows []Row) ([]Row, listPage) {
	parameter, size := cmp.Or(l.Parameter, "page"), cmp.Or(l.Size, pageSize)
	out := listPage{Of: l.Of, All: len(rows)}
	if l.Matches != nil {
		out.Words = spelling.Pasted(query.Get("q"))
	}
	var found, first []Row
	for _, row := range rows {
		switch {
		case l.First != nil && l.First(row):
			first = append(first, row)
		case out.Words == "" || l.Matches(row, out.Words):
			found = append(found, row)
		}
	}
	found = append(first, found...)
	out.Found = len(found)
	last := max(0, (len(found)-1)/size)
	number, err := strconv.Atoi(query.Get(parameter))
	if err != nil {
		number = 1
	}
	number = min(max(number-1, 0), last)
	path := func(to int) string {
		if to < 0 || to > last {
			return ""
		}
		other := url.Values{parameter: {strconv.Itoa(to + 1)}}
		if out.Words != "" {
			other.Set("q", out.Words)
		}
		separator := "?"
		if strings.Contains(l.Path, "?") {
			separator = "&"
		}
		return l.Path + separator + other.Encode()
	}
	out.Previous, out.Later = path(number-1), path(number+1)
	shown := found[number*size : min(len(found), (number+1)*size)]
	out.From, out.To = number*size+1, number*size+len(shown)
	return shown, out
}

// contains reports whether one of the texts contains words, ignoring case.
func contains(words string, texts ...string) bool {
	words = spelling.Search(words)
	for _, text := range texts {
		if strings.Contains(spelling.Fold(text), words) {
			return true
		}
	}
	return false
}

// A logSearch is a submitted search form of a log.
type logSearch struct{ Request, Person, Application, Client, Since, Until string }

// maxWords bounds a field of the search.
const maxWords = 200

// readWords returns the search text of a parameter, or "" if it is too long or contains a zero byte.
func readWords(query url.Values, name string) string {
	text := spelling.Pasted(strings.ToValidUTF8(query.Get(name), ""))
	if len(text) > maxWords || strings.ContainsRune(text, 0) {
		return ""
	}
	return text
}

// readSearch reads the form. A field that cannot be searched for is empty.
func readSearch(query url.Values) logSearch {
	day := func(name string) string {
		if _, err := time.Parse(time.DateOnly, query.Get(name)); err != nil {
			return ""
		}
		return query.Get(name)
	}
	search := logSearch{
		Request:     readWords(query, "request"),
		Person:      readWords(query, "person"),
		Application: readWords(query, "application"),
		Since:       day("since"),
		Until:       day("until"),
	}
	if client, err := identity.Parse(query.Get("client")); err == nil {
		search.Client = client.String()
	}
	return search
}

// Problem returns the error of the field “To”, or "".
func (l logSearch) Problem() string {
	if l.Since != "" && l.Until != "" && l.Since > l.Until { // as text, since both are YYYY-MM-DD
		return "“From” must not be later than “To”."
	}
	return ""
}

// Query returns the search as a part of a query, with its separator.
func (l logSearch) Query() string {
	query := url.Values{}
	for name, text := range map[string]string{
		"request":     l.Request,
		"person":      l.Person,
		"application": l.Application,
		"client":      l.Client,
		"since":       l.Since,
		"until":       l.Until,
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

// of returns the search for the store. The last day is included.
func (l logSearch) of() audit.Search {
	out := audit.Search{RequestID: l.Request, Person: l.Person, Application: l.Application}
	out.Client, _ = identity.Parse(l.Client)          // "" is the zero id
	out.Since, _ = time.Parse(time.DateOnly, l.Since) // "" is the zero time
	if until, err := time.Parse(time.DateOnly, l.Until); err == nil {
		out.Until = until.AddDate(0, 0, 1)
	}
	return out
}

// writeMark returns a position in a log as a parameter of its page.
func writeMark(m audit.Cursor) string {
	return url.QueryEscape(m.At.UTC().Format(time.RFC3339Nano) + "~" + m.ID.String())
}

// readMark parses a mark of writeMark. Other text is the beginning of the log.
func readMark(text string) audit.Cursor {
	at, id, _ := strings.Cut(text, "~")
	moment, atErr := time.Parse(time.RFC3339Nano, at)
	entry, idErr := identity.Parse(id)
	if atErr != nil || idErr != nil {
		return audit.Cursor{}
	}
	return audit.Cursor{At: moment, ID: entry}
}
