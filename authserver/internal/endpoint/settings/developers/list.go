package developers

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
)

// pageSize is how many rows a page of a list has.
const pageSize = 25

// A list is the search and the page of a list.
type list struct {
	All             int // rows without the search
	Found           int
	From, To        int // of the page, from 1
	Words           string
	Previous, Later string // paths of the other pages, or ""
}

// pageOf returns the rows of the page that the URL selects, and describes it. matches tells whether a row has the words
// of the search. The response to a form shows first the row that it concerns.
func pageOf[Row any](
	v *settings.Request, here settings.Scope, section ui.Section, rows []Row,
	concerned func(Row) bool, matches func(row Row, words string) bool,
) ([]Row, list) {
	query := v.R.URL.Query()
	out := list{All: len(rows), Words: strings.TrimSpace(query.Get("q"))}
	var found, first []Row
	for _, row := range rows {
		switch {
		case concerned(row):
			first = append(first, row)
		case out.Words == "" || matches(row, out.Words):
			found = append(found, row)
		}
	}
	found = append(first, found...)
	out.Found = len(found)
	last := max(0, (len(found)-1)/pageSize)
	number, err := strconv.Atoi(query.Get("page"))
	if err != nil {
		number = 1
	}
	number = min(max(number-1, 0), last)
	path := func(to int) string {
		if to < 0 || to > last {
			return ""
		}
		other := url.Values{"page": {strconv.Itoa(to + 1)}}
		if out.Words != "" {
			other.Set("q", out.Words)
		}
		return here.Path(section) + "&" + other.Encode()
	}
	out.Previous, out.Later = path(number-1), path(number+1)
	shown := found[number*pageSize : min(len(found), (number+1)*pageSize)]
	out.From, out.To = number*pageSize+1, number*pageSize+len(shown)
	return shown, out
}

// contains reports whether one of the texts has the words, in upper or lower case.
func contains(words string, texts ...string) bool {
	for _, text := range texts {
		if strings.Contains(strings.ToLower(text), strings.ToLower(words)) {
			return true
		}
	}
	return false
}
