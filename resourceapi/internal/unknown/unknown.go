// Package unknown finds the query parameters and JSON members that a route does not know.
//
// A name that was spelled wrongly and left out without a word would make a filter or a change into another one, so the
// request is refused and the name is told (contract, section 6). Names are compared byte by byte: another case is
// another name.
package unknown

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/almonerhq/almoner/shared/apierr"

	"github.com/almonerhq/almoner/resourceapi/internal/strictjson"
)

// Bounds of what an answer repeats of a request.
const (
	maxNames = 10
	maxName  = 64 // characters
)

// Members returns a message for each member that is not among known, by its name.
func Members(object strictjson.Object, known ...string) map[string]string {
	return messages(slices.Collect(maps.Keys(object)), known, "There is no such member.")
}

// Parameters returns an *apierr.Error that names the parameters of a query string that are not among known, or nil.
func Parameters(raw string, known ...string) error {
	var names []string
	for pair := range strings.SplitSeq(raw, "&") {
		key, _, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(key)
		if err != nil {
			name = key // which is no known one: a percent sign is in it
		}
		if pair != "" {
			names = append(names, name)
		}
	}
	fields := messages(names, known, "There is no such query parameter.")
	if len(fields) == 0 {
		return nil
	}
	return &apierr.Error{
		Kind:    apierr.Invalid,
		Message: "The request has query parameters that are not known here. error.fields names them.",
		Fields:  fields,
	}
}

func messages(names, known []string, message string) map[string]string {
	found := map[string]string{}
	slices.Sort(names)
	for _, name := range names {
		if !slices.Contains(known, name) && len(found) < maxNames {
			found[shown(name)] = message
		}
	}
	return found
}

// shown is a name as it stands in an answer: short, and without characters that are not seen.
func shown(name string) string {
	if utf8.RuneCountInString(name) > maxName {
		name = string([]rune(name)[:maxName]) + "…"
	}
	if quoted := strconv.QuoteToGraphic(name); quoted != `"`+name+`"` || name == "" {
		return quoted
	}
	return name
}
