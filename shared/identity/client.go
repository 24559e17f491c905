package identity

import (
	"crypto/sha256"
	"strings"

	"github.com/google/uuid"
)

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
