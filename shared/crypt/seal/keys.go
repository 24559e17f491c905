package seal

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// Keys are master keys of 32 bytes each, newest first. Copies of a Keys share them: Replace replaces the keys of all
// copies, and the keys derived from them. Keys are safe for concurrent use.
type Keys struct{ masters *atomic.Pointer[[][]byte] }

// NewKeys returns the keys, newest first.
func NewKeys(masters ...[]byte) Keys {
	k := Keys{masters: new(atomic.Pointer[[][]byte])}
	k.masters.Store(&masters)
	return k
}

// ParseKeys parses a comma-separated list of base64url keys of 32 bytes each, newest first.
func ParseKeys(text credential.Secret) (Keys, error) {
	var masters [][]byte
	for _, part := range strings.Split(text.Reveal(), ",") {
		key, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimRight(strings.TrimSpace(part), "="))
		if err != nil || len(key) != 32 {
			return Keys{}, errors.New(
				"each key is 32 bytes in base64url; make one with: openssl rand 32 | basenc --base64url",
			)
		}
		masters = append(masters, key)
	}
	return NewKeys(masters...), nil
}

// Replace replaces the master keys of k and all its copies by the master keys of with.
func (k Keys) Replace(with Keys) { k.masters.Store(with.masters.Load()) }

// deriveKeys returns a key of 32 bytes for the purpose, for each master key.
func deriveKeys(masters [][]byte, purpose string) ([][]byte, error) {
	out := make([][]byte, len(masters))
	for i, master := range masters {
		derived, err := hkdf.Key(sha256.New, master, nil, "almoner "+purpose, 32)
		if err != nil {
			return nil, fmt.Errorf("derive the key for %s: %w", purpose, err)
		}
		out[i] = derived
	}
	return out, nil
}

// Purposes returns a function for Derive. It derives a key of 32 bytes for each purpose and each master key. The result
// has an element for each purpose: the keys in the order of the master keys.
func Purposes(names ...string) func(masters [][]byte) ([][][]byte, error) {
	return func(masters [][]byte) ([][][]byte, error) {
		out := make([][][]byte, len(names))
		for i, name := range names {
			var err error
			if out[i], err = deriveKeys(masters, name); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
}

// A Derived is a value derived from master keys. It is derived again when the keys are replaced.
type Derived[T any] struct {
	keys   Keys
	derive func(masters [][]byte) (T, error)
	last   atomic.Pointer[derivation[T]]
}

type derivation[T any] struct {
	from  *[][]byte
	value T
}

// Derive derives a value. derive is called again after the keys were replaced. It must not fail for keys that ParseKeys
// accepts; if it does, the former value is used.
func Derive[T any](keys Keys, derive func(masters [][]byte) (T, error)) (*Derived[T], error) {
	if keys.masters == nil || len(*keys.masters.Load()) == 0 {
		return nil, errors.New("at least one key is needed")
	}
	d := &Derived[T]{keys: keys, derive: derive}
	from := keys.masters.Load()
	value, err := derive(*from)
	if err != nil {
		return nil, err
	}
	d.last.Store(&derivation[T]{from, value})
	return d, nil
}

// Now returns the value derived from the current keys.
func (d *Derived[T]) Now() T {
	last, masters := d.last.Load(), d.keys.masters.Load()
	if last.from == masters {
		return last.value
	}
	value, err := d.derive(*masters)
	if err != nil {
		return last.value
	}
	d.last.Store(&derivation[T]{masters, value})
	return value
}
