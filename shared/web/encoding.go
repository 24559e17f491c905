package web

import (
	"net/http"
	"slices"
	"strings"
)

// EncodedWords are the answer to a request whose body is Encoded.
const EncodedWords = "Send the body as it is: Content-Encoding is not understood here."

// Encoded says whether a body was compressed or otherwise encoded before it was sent (RFC 9110, section 8.4). Nothing
// here undoes that: what is inside could be of any size.
func Encoded(h http.Header) bool {
	return slices.ContainsFunc(h.Values("Content-Encoding"), func(value string) bool {
		value = strings.TrimSpace(value)
		return value != "" && !strings.EqualFold(value, "identity")
	})
}
