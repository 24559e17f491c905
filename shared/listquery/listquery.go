// Package listquery reads the query parameters that every list has: limit, cursor and fields (contract, sections 6 and
// 6a). Both services use it.
package listquery

import (
	"net/url"
	"slices"
	"strings"
)

// Page sizes of every list (spec 8).
const (
	DefaultLimit = 50
	MaxLimit     = 200
)

// Parameters returns the named parameters of a query string, and messages about invalid ones by their names. net/url
// drops what it cannot parse, which would remove an invalid filter; here that is a problem, and so is a repeated name.
func Parameters(raw string, names ...string) (values, problems map[string]string) {
	values, problems = map[string]string{}, map[string]string{}
	for pair := range strings.SplitSeq(raw, "&") {
		key, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(key)
		if err != nil || !slices.Contains(names, name) {
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

// Limit returns the parameter limit, or DefaultLimit without one. It adds to problems.
func Limit(values, problems map[string]string) int {
	text, given := values["limit"]
	if !given {
		return DefaultLimit
	}
	limit := parseLimit(text)
	if limit == 0 {
		problems["limit"] = "Must be an integer of at least 1. Values over 200 count as 200."
	}
	return limit
}

// parseLimit parses decimal digits and returns 0 if text is invalid. Larger numbers, even beyond int, count as
// MaxLimit.
func parseLimit(text string) int {
	limit := 0
	for _, digit := range []byte(text) {
		if digit < '0' || digit > '9' {
			return 0
		}
		limit = min(limit*10+int(digit-'0'), MaxLimit)
	}
	return limit
}
