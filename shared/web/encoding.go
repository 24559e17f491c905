package web

import (
	"net/http"
	"slices"
	"strings"
)

// EncodedWords is the message for a request whose body is Encoded.
const EncodedWords = "Content-Encoding is not supported. Send the body without encoding."

// Encoded reports whether a body was compressed or otherwise encoded (RFC 9110, section 8.4). The services do
// not decode it, because the content could be of any size.
func Encoded(h http.Header) bool {
	return slices.ContainsFunc(h.Values("Content-Encoding"), func(value string) bool {
		value = strings.TrimSpace(value)
		return value != "" && !strings.EqualFold(value, "identity")
	})
}
