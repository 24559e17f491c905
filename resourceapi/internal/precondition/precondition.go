// Package precondition answers: is what the caller wants to change still what they have seen?
//
// A record's version is its entity tag. Who reads a record gets the tag in ETag; who changes it may send the tag back in
// If-Match, and is refused if the record was changed in between (RFC 9110, section 13.1.1; contract, section 6).
package precondition

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/almonerhq/almoner/shared/apierr"
)

var errIfMatch = apierr.New(apierr.Invalid, `If-Match must be * or entity tags in quotes, as ETag gave them: "3".`)

// Tag names a version of a record (RFC 9110, section 8.8.3).
func Tag(version int) string { return fmt.Sprintf(`"%d"`, version) }

// A Match is what If-Match asks. The zero value asks nothing.
type Match struct{ tags map[string]bool }

// Read reads If-Match. Without the header anything goes. It returns an *apierr.Error.
func Read(h http.Header) (Match, error) {
	values := h.Values("If-Match")
	text := strings.TrimSpace(strings.Join(values, ","))
	if len(values) == 0 || text == "*" {
		return Match{}, nil
	}
	tags := map[string]bool{}
	for tag := range strings.SplitSeq(text, ",") {
		tag = strings.TrimSpace(tag)
		if !quoted(strings.TrimPrefix(tag, "W/")) {
			return Match{}, errIfMatch
		}
		tags[tag] = true
	}
	return Match{tags}, nil
}

// Holds says whether the version is one that was asked for. Tags are compared strongly: ours are strong, so a weak one
// matches nothing.
func (m Match) Holds(version int) bool { return m.tags == nil || m.tags[Tag(version)] }

func quoted(text string) bool {
	return len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' && !strings.Contains(text[1:len(text)-1], `"`)
}
