package settings

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/almonerhq/almoner/shared/spelling"
)

// PageSize is how many rows a page of a list has.
const PageSize = 25

// A List is the search and the page of a list.
type List struct {
	Of              string // what the rows are, such as "members"
	All             int    // rows without the search
	Found           int
	From, To        int    // of the page, from 1
	Words           string // search text, or ""
	Previous, Later string // paths of the other pages, or ""
}

// A Listing selects the page of a list by the parameters of the URL.
type Listing[Row any] struct {
	Of        string // what the rows are
	Path      string // of the page, which may have a query
	Parameter string // of the number of the page; "page" if empty
	Size      int    // of a page; PageSize if 0

	First   func(Row) bool                   // reports whether a row comes first, or nil
	Matches func(row Row, words string) bool // reports whether the search finds a row; nil if the list has no search
}

// Select returns the rows of the page that the URL selects, and describes it.
func (l Listing[Row]) Select(query url.Values, rows []Row) ([]Row, List) {
	parameter, size := l.Parameter, l.Size
	if parameter == "" {
		parameter = "page"
	}
	if size == 0 {
		size = PageSize
	}
	out := List{Of: l.Of, All: len(rows)}
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

// Contains reports whether one of the texts contains words, ignoring case.
func Contains(words string, texts ...string) bool {
	words = spelling.Search(words)
	for _, text := range texts {
		if strings.Contains(spelling.Fold(text), words) {
			return true
		}
	}
	return false
}
