package list

import (
	"net/url"
	"slices"
	"strings"

	"github.com/almonerhq/almoner/resourceapi/internal/invalid"
)

// Page sizes of every list (spec 8).
const (
	DefaultLimit = 50
	MaxLimit     = 200
)

// ReadParameters returns the named parameters of a query string and the problems with them. net/url drops what it
// cannot parse, which would remove an invalid filter; here that is a problem, and so is a repeated name.
func ReadParameters(raw string, names ...string) (map[string]string, invalid.Fields) {
	values, problems := map[string]string{}, invalid.Fields{}
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

// ReadLimit returns the parameter limit, or DefaultLimit without one. It adds to problems.
func ReadLimit(values map[string]string, problems invalid.Fields) int {
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
