// Package idempotency answers: was this write asked for before, and what was answered?
//
// A caller who does not know whether a write arrived sends it again with the same Idempotency-Key and gets the first
// answer again, with one effect (contract, section 6). Keys live 24 hours, per workspace, user and route; only answers
// of 2xx are kept. The record is written in the transaction of the effect, so that neither exists without the other.
package idempotency

import (
	"crypto/sha256"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
)

// Header carries the key.
const Header = "Idempotency-Key"

// Life is how long an answer is kept.
const Life = 24 * time.Hour

const maxKey = 255

// A Scope says whose keys, and for what: the same key elsewhere is another key.
type Scope struct {
	WorkspaceID uuid.UUID
	User        uuid.UUID
	Route       string // method and path, the ids in it included
}

// A Key is one caller's name for one write. Without a Text it is none: nothing is remembered. Its Scope is known all
// the same.
type Key struct {
	Scope
	Text string
	Body [sha256.Size]byte // of the request's body
}

// Given says whether the caller named the write.
func (k Key) Given() bool { return k.Text != "" }

// An Answer is what was answered to a write.
type Answer struct {
	Status   int
	ETag     string // "": none
	Location string // "": none
	Body     []byte // JSON
}

// ErrReused says that the key was used for another body. It is a Conflict.
var ErrReused = apierr.New(
	apierr.Conflict,
	"This Idempotency-Key was used within 24 hours for a request with another body. Use a new key for a new request.",
)

// ReadKey reads the header: at most one, 1 to 255 visible ASCII characters. Without it, the key has its scope alone. It
// returns an *apierr.Error.
func ReadKey(h http.Header, scope Scope, body []byte) (Key, error) {
	values := h.Values(Header)
	if len(values) == 0 {
		return Key{Scope: scope}, nil
	}
	if len(values) > 1 || !visible(values[0]) {
		return Key{}, apierr.New(
			apierr.Invalid,
			"Idempotency-Key must be given once, as 1 to 255 visible ASCII characters.",
		)
	}
	return Key{Scope: scope, Text: values[0], Body: sha256.Sum256(body)}, nil
}

func visible(text string) bool {
	for _, b := range []byte(text) {
		if b < 0x21 || b > 0x7e {
			return false
		}
	}
	return text != "" && len(text) <= maxKey
}
