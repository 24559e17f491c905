// Package precondition answers: is the record still what the caller has seen?
//
// A record's version is its entity tag. Who reads a record gets the tag in ETag; who changes it may send the tag back
// in If-Match, and is refused if the record was changed in between (RFC 9110, section 13.1.1; contract, section 6). Who
// reads it again may send the tag in If-None-Match, and is told if there is nothing new (section 13.1.2).
package precondition

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/almonerhq/almoner/shared/apierr"
)

// Tag names a version of a record (RFC 9110, section 8.8.3).
func Tag(version int) string { return fmt.Sprintf(`"%d"`, version) }

// Conditions are what a request asks of a record. The zero value asks nothing.
type Conditions struct{ match, noneMatch *tags }

// tags are those of one header: any there are, or the listed.
type tags struct {
	any    bool
	listed []string
}

// Read reads If-Match and If-None-Match. It returns an *apierr.Error.
func Read(h http.Header) (Conditions, error) {
	var c Conditions
	for _, one := range []struct {
		name string
		into **tags
	}{{"If-Match", &c.match}, {"If-None-Match", &c.noneMatch}} {
		values := h.Values(one.name)
		if len(values) == 0 {
			continue
		}
		given, ok := readTags(strings.Join(values, ","))
		if !ok {
			return Conditions{}, apierr.New(
				apierr.Invalid,
				one.name+` must be * or entity tags in quotes, as ETag gave them: "3".`,
			)
		}
		*one.into = &given
	}
	return c, nil
}

// readTags reads a list whose empty elements count for nothing, and whose tags may hold commas (sections 5.6.1.2 and
// 8.8.3).
func readTags(text string) (given tags, ok bool) {
	if strings.Trim(text, " \t") == "*" {
		return tags{any: true}, true
	}
	for text = strings.Trim(text, " \t,"); text != ""; text = strings.TrimLeft(text, " \t,") {
		opaque, weak := strings.CutPrefix(text, "W/")
		if !strings.HasPrefix(opaque, `"`) {
			return tags{}, false
		}
		inside, rest, closed := strings.Cut(opaque[1:], `"`)
		after := strings.TrimLeft(rest, " \t")
		if !closed || (after != "" && after[0] != ',') {
			return tags{}, false
		}
		tag := `"` + inside + `"`
		if weak {
			tag = "W/" + tag
		}
		given.listed = append(given.listed, tag)
		text = after
	}
	return given, len(given.listed) > 0
}

// Holds says whether the version is one that If-Match asks for. Tags are compared strongly: ours are strong, so a weak
// one matches nothing.
func (c Conditions) Holds(version int) bool {
	return c.match == nil || c.match.any || slices.Contains(c.match.listed, Tag(version))
}

// Seen says whether the version is one that If-None-Match names, compared weakly. Who reads it need not be sent it
// again, and who wants to change it asked for that not to happen.
func (c Conditions) Seen(version int) bool {
	if c.noneMatch == nil {
		return false
	}
	tag := Tag(version)
	return c.noneMatch.any || slices.Contains(c.noneMatch.listed, tag) || slices.Contains(c.noneMatch.listed, "W/"+tag)
}
