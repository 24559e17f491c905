package identity

import (
	"crypto/sha256"
	"strings"

	"github.com/google/uuid"
)

// OfClient returns the identifier under which a client is kept that is called text wherever client_id is said. A
// registered client is called by that identifier itself, in its one spelling. One that is known by its metadata
// document is called by the document's address, and kept under a hash of it (UUID version 8; RFC 9562, section 5.8), so
// that both services and every process agree on it without asking anybody. Its error is ErrMalformed.
func OfClient(text string) (uuid.UUID, error) {
	if IsAddress(text) {
		return uuid.NewHash(sha256.New(), uuid.NameSpaceURL, []byte(text), 8), nil
	}
	return ParseExact(text)
}

// IsAddress says whether a client_id is the address of a metadata document; whether it is a good one is not asked here.
func IsAddress(text string) bool { return strings.HasPrefix(text, "https://") }
