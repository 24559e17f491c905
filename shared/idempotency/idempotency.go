// Package idempotency reads the Idempotency-Key of a write and defines its stored answer.
//
// A client that does not know whether a write arrived repeats it with the same Idempotency-Key. It gets the first
// answer, and the write takes effect once (contract, section 6). Keys are valid for 24 hours, per workspace, user and
// route; only 2xx answers are stored. The record is written in the transaction of the effect, so that neither exists
// without the other.
package idempotency

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/perm"
)

// Header is the header of the key. ReplayedHeader marks an answer that is given again (contract, section 6a).
const (
	Header         = "Idempotency-Key"
	ReplayedHeader = "Idempotency-Replayed"
)

// Retention is how long an answer is stored.
const Retention = 24 * time.Hour

const maxKey = 255

// A Scope is the scope of a key: the same text in another scope is another key.
type Scope struct {
	WorkspaceID uuid.UUID
	User        uuid.UUID
	Route       string // RouteOf the request
}

// maxRoute is the maximum length of a stored path, in bytes. An index of PostgreSQL takes no more than 2,700 bytes for
// the whole scope.
const maxRoute = 500

// RouteOf returns the method and the path of a request, including ids. Of a path that is too long for an index, it
// returns a hash.
func RouteOf(r *http.Request) string {
	path := r.URL.EscapedPath()
	if len(path) > maxRoute {
		hash := sha256.Sum256([]byte(path))
		path = "sha256:" + hex.EncodeToString(hash[:])
	}
	return r.Method + " " + path
}

// A Key identifies one write of one caller. If Text is empty, there is no key and no answer is stored; the Scope is
// still set.
type Key struct {
	Scope
	Text string
	Body [sha256.Size]byte // hash of the request's body
	By   Caller            // the zero Caller if no credential is needed
}

// A Caller is the credential of a request and what it may do at this moment.
type Caller struct {
	Credential uuid.UUID // of a personal access token or a grant
	Held       perm.Set
}

// Given reports whether the request has a key.
func (k Key) Given() bool { return k.Text != "" }

// An Answer is the response to a write.
type Answer struct {
	Status   int
	ETag     string // empty if none
	Location string // empty if none
	Body     []byte // JSON
	Replayed bool   // an earlier request with the same key got this answer
	// Needs are the permissions that the write needed besides those that its route checks. The answer is not repeated
	// to a caller without them.
	Needs  perm.Set
	Secret bool // the body has a secret: the answer is repeated to the same credential alone
}

// Serve writes the answer.
func (a Answer) Serve(w http.ResponseWriter) {
	for name, value := range map[string]string{"ETag": a.ETag, "Location": a.Location} {
		if value != "" {
			w.Header().Set(name, value)
		}
	}
	if a.Replayed {
		w.Header().Set(ReplayedHeader, "true")
	}
	if len(a.Body) > 0 {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // a client that disconnected is not an error
}

// ErrReused is returned for a key that was used with another body. It is a Conflict.
var ErrReused = apierr.New(
	apierr.Conflict,
	"This Idempotency-Key was already used with a different body within 24 hours. Use a new key for a new request.",
)

// ErrOtherCredential is returned for a key whose answer has a secret that another credential got. It is a Conflict.
var ErrOtherCredential = apierr.New(
	apierr.Conflict,
	"Another credential used this Idempotency-Key, and the answer contains a secret. Use a new key for a new request.",
)

// mayRepeat returns an error if the stored answer must not be given to the caller. credential is that of the first
// request if the answer has a secret, or nil.
func (c Caller) mayRepeat(needs perm.Set, credential *uuid.UUID) error {
	if missing := needs.Without(c.Held); len(missing) > 0 {
		return apierr.New(
			apierr.Forbidden,
			"The request with this Idempotency-Key needed permissions that you or your credential do not have now. "+
				"Missing: "+missing.Scope()+".",
		)
	}
	if credential != nil && *credential != c.Credential {
		return ErrOtherCredential
	}
	return nil
}

// ReadKey reads the header, which may appear once with 1 to 255 visible ASCII characters. Without it, the key has
// only a scope. The error is an *apierr.Error.
func ReadKey(h http.Header, scope Scope, body []byte) (Key, error) {
	values := h.Values(Header)
	if len(values) == 0 {
		return Key{Scope: scope}, nil
	}
	if len(values) > 1 || !visible(values[0]) {
		return Key{}, apierr.New(
			apierr.Invalid,
			"Send Idempotency-Key only once, with 1 to 255 visible ASCII characters.",
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
