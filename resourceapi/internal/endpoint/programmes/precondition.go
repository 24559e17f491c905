package programmes

import (
	"net/http"
	"strings"

	"github.com/almonerhq/almoner/shared/apierr"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

var errIfMatch = apierr.New(apierr.Invalid, `If-Match must be * or entity tags in quotes, as ETag gave them: "3".`)

// readIfMatch returns what If-Match asks of the programme (RFC 9110, section 13.1.1). Without the header anything goes.
// Tags are compared strongly: ours are strong, so a weak one matches nothing.
func readIfMatch(h http.Header) (func(programme.Programme) bool, error) {
	values := h.Values("If-Match")
	text := strings.TrimSpace(strings.Join(values, ","))
	if len(values) == 0 || text == "*" {
		return func(programme.Programme) bool { return true }, nil
	}
	tags := map[string]bool{}
	for tag := range strings.SplitSeq(text, ",") {
		tag = strings.TrimSpace(tag)
		if !quoted(strings.TrimPrefix(tag, "W/")) {
			return nil, errIfMatch
		}
		tags[tag] = true
	}
	return func(p programme.Programme) bool { return tags[entityTag(p)] }, nil
}

func quoted(text string) bool {
	return len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' && !strings.Contains(text[1:len(text)-1], `"`)
}
