package gate

import (
	"errors"
	"net/http"
	"strings"

	"github.com/almonerhq/almoner/shared/credential"
)

// The response to errBadBearer names an error; the response to errNoBearer does not (RFC 6750, section 3).
var (
	errNoBearer  = errors.New("no bearer token")
	errBadBearer = errors.New("not one bearer token")
)

// readBearer returns the token of the single Authorization header (RFC 6750, section 2.1). The scheme is matched
// case-insensitively, followed by one or more spaces and one b64token. No other code reads tokens from a request.
func readBearer(h http.Header) (credential.Secret, error) {
	values := h.Values("Authorization")
	if len(values) == 0 {
		return "", errNoBearer
	}
	if len(values) > 1 {
		return "", errBadBearer
	}
	scheme, rest, _ := strings.Cut(values[0], " ")
	token := strings.TrimLeft(rest, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", errNoBearer
	}
	for _, b := range []byte(strings.TrimRight(token, "=")) {
		if !isTokenByte(b) {
			return "", errBadBearer
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
