// Package identity parses and creates identifiers.
//
// Users, workspaces, clients and grants have UUIDs in the canonical form of 36 characters (RFC 9562, section
// 4). google/uuid also accepts braces, URNs and bare hex; Parse refuses them, because several forms of one
// identifier invite wrong comparisons.
package identity

import (
	"crypto/sha256"
	"errors"
	"strings"

	"github.com/google/uuid"
)

// ErrMalformed reports that a text is not a UUID in canonical form.
var ErrMalformed = errors.New("not a UUID in its canonical form")

// Parse parses a UUID of exactly 36 characters. It accepts upper case hex, as RFC 9562 section 4 requires of
// readers.
func Parse(text string) (uuid.UUID, error) {
	if len(text) != 36 {
		return uuid.Nil, ErrMalformed
	}
	id, err := uuid.Parse(text)
	if err != nil {
		return uuid.Nil, ErrMalformed
	}
	return id, nil
}

// ParseExact is Parse for identifiers that are compared as text, such as OAuth client identifiers (RFC 6749,
// section 2.2): it accepts only the form that String returns.
func ParseExact(text string) (uuid.UUID, error) {
	id, err := Parse(text)
	if err != nil || id.String() != text {
		return uuid.Nil, ErrMalformed
	}
	return id, nil
}

// New returns an identifier that sorts by creation time, which keeps Postgres indexes compact.
func New() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// OfClient returns the stored identifier of the client with this client_id. A registered client's client_id
// is that identifier in canonical form. A client known by its metadata document has the document's address as
// client_id, and its identifier is a hash of the address (UUID version 8; RFC 9562, section 5.8), so that all
// processes of both services compute the same. Its error is ErrMalformed.
func OfClient(text string) (uuid.UUID, error) {
	if IsAddress(text) {
		return uuid.NewHash(sha256.New(), uuid.NameSpaceURL, []byte(text), 8), nil
	}
	return ParseExact(text)
}

// IsAddress reports whether a client_id is the address of a metadata document. It does not check whether the
// address is valid.
func IsAddress(text string) bool { return strings.HasPrefix(text, "https://") }
