package workspace

import (
	"strings"
	"unicode/utf8"
)

// MaxEmail is the maximum length of an e-mail address (RFC 5321, section 4.5.3.1.3).
const MaxEmail = 254

// PlausibleEmail reports whether a text can be an e-mail address. Other text is refused before a store is queried.
func PlausibleEmail(email string) bool {
	return len(email) <= MaxEmail && utf8.ValidString(email) &&
		!strings.ContainsFunc(email, func(r rune) bool { return r <= ' ' || r == 0x7f }) &&
		strings.Contains(strings.Trim(email, "@"), "@")
}
