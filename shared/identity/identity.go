// Package identity answers: how is an identifier spelled?
//
// Users, workspaces, clients and grants are known by UUIDs in one spelling alone, the canonical 36 characters
// (RFC 9562, section 4). google/uuid also reads braces, URNs and bare hex; an identifier with several
// spellings is an invitation to compare the wrong ones, so Parse refuses them.
package identity

import (
	"errors"

	"github.com/google/uuid"
)

// ErrMalformed says that a text is not a UUID in its canonical form.
var ErrMalformed = errors.New("not a UUID in its canonical form")

// Parse reads a UUID of exactly 36 characters. Upper case hex is accepted, as RFC 9562 section 4 asks of readers.
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

// ParseExact is Parse for identifiers that are compared as text by others, such as OAuth client identifiers (RFC 6749,
// section 2.2): only the spelling that String writes is that identifier.
func ParseExact(text string) (uuid.UUID, error) {
	id, err := Parse(text)
	if err != nil || id.String() != text {
		return uuid.Nil, ErrMalformed
	}
	return id, nil
}

// New returns an identifier that sorts by the time of its making, which keeps Postgres indexes compact.
func New() uuid.UUID { return uuid.Must(uuid.NewV7()) }
