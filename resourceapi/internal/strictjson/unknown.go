package strictjson

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/almonerhq/almoner/shared/apierr"
)

// Limits of what a response repeats of a request.
const (
	maxNames = 10
	maxName  = 64 // characters
)

// UnknownMembers returns a message for each member that is not among known, by its name.
func UnknownMembers(object Object, known ...string) map[string]string {
	return messages(slices.Collect(maps.Keys(object)), known, "Unknown member.")
}

// UnknownParameters returns an *apierr.Error that names the parameters of a query string that are not among known, or
// nil.
func UnknownParameters(raw string, known ...string) error {
	var names []string
	for pair := range strings.SplitSeq(raw, "&") {
		key, _, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(key)
		if err != nil {
			name = key // not a known name, since it contains a percent sign
		}
		if pair != "" {
			names = append(names, name)
		}
	}
	fields := messages(names, known, "Unknown query parameter.")
	if len(fields) == 0 {
		return nil
	}
	return &apierr.Error{
		Kind:    apierr.Invalid,
		Message: "The request has unknown query parameters. error.fields names them.",
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

// shown returns a name for a response: short, and without invisible characters.
func shown(name string) string {
	if utf8.RuneCountInString(name) > maxName {
		name = string([]rune(name)[:maxName]) + "…"
	}
	if quoted := strconv.QuoteToGraphic(name); quoted != `"`+name+`"` || name == "" {
		return quoted
	}
	return name
}
