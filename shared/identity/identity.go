// Package identity parses and creates identifiers.
//
// Users, workspaces, clients and grants have UUIDs in the canonical form of 36 characters (RFC 9562, section
// 4). google/uuid also accepts braces, URNs and bare hex; Parse refuses them, because several forms of one
// identifier invite wrong comparisons.
package identity

import (
	"errors"

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
