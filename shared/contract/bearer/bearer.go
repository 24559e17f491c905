// Package bearer reads the bearer token of a request (RFC 6750). No other code reads tokens from a request.
package bearer

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// Errors of Read. The response to ErrMalformed names an error; the response to ErrMissing does not (RFC 6750, section
// 3). ErrEmpty wraps ErrMissing.
var (
	ErrMissing   = errors.New("no bearer token")
	ErrEmpty     = fmt.Errorf("%w: an empty one", ErrMissing)
	ErrMalformed = errors.New("not one bearer token")
)

// Read returns the token of the single Authorization header (RFC 6750, section 2.1): the scheme in any case, one or
// more spaces, and one b64token. It returns ErrMissing, ErrEmpty or ErrMalformed.
func Read(h http.Header) (credential.Secret, error) {
	values := h.Values("Authorization")
	if len(values) == 0 {
		return "", ErrMissing
	}
	if len(values) > 1 {
		return "", ErrMalformed
	}
	scheme, rest, _ := strings.Cut(values[0], " ")
	token := strings.TrimLeft(rest, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", ErrMissing
	}
	if token == "" {
		return "", ErrEmpty
	}
	for _, b := range []byte(strings.TrimRight(token, "=")) {
		if !isTokenByte(b) {
			return "", ErrMalformed
		}
	}
	return credential.Secret(token), nil
}

func isTokenByte(b byte) bool {
	switch {
	case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9':
		return true
	}
	return strings.IndexByte("-._~+/", b) >= 0
}
