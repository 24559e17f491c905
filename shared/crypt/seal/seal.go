// Package seal encrypts and authenticates opaque texts that the server later receives back.
//
// Cursors, consent tickets, submission tokens and stored signing keys are sealed with XChaCha20-Poly1305
// under a key derived (HKDF-SHA256) from a configured key, with the purpose as associated data, so that a
// text sealed for one purpose cannot be opened for another. Keys rotate: the first key seals, all keys open.
// Keys can be replaced while the process runs (Keys.Replace).
package seal

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// ErrForeign reports that a text was not sealed by this server for this purpose, or was altered.
var ErrForeign = errors.New("not sealed by this server for this purpose")

// A Box seals and opens for one purpose. It is safe for concurrent use, and uses the new keys after Keys.Replace.
type Box struct {
	purpose []byte
	ciphers *Derived[[]cipher.AEAD]
}

// NewBox derives the purpose's keys from the master keys.
func NewBox(keys Keys, purpose string) (*Box, error) {
	ciphers, err := Derive(keys, func(masters [][]byte) ([]cipher.AEAD, error) {
		derived, err := deriveKeys(masters, purpose)
		if err != nil {
			return nil, err
		}
		var aeads []cipher.AEAD
		for _, key := range derived {
			aead, err := chacha20poly1305.NewX(key)
			if err != nil {
				return nil, fmt.Errorf("key for %s: %w", purpose, err)
			}
			aeads = append(aeads, aead)
		}
		return aeads, nil
	})
	if err != nil {
		return nil, err
	}
	return &Box{purpose: []byte(purpose), ciphers: ciphers}, nil
}

// Seal returns an opaque text, safe in a URL, from which Open returns the content.
func (b *Box) Seal(content []byte) string {
	return base64.RawURLEncoding.EncodeToString(b.SealBytes(content))
}

// SealBytes is Seal without the encoding.
func (b *Box) SealBytes(content []byte) []byte {
	nonce := make([]byte, chacha20poly1305.NonceSizeX,
		chacha20poly1305.NonceSizeX+len(content)+chacha20poly1305.Overhead)
	_, _ = rand.Read(nonce) // never fails (crypto/rand)
	return b.ciphers.Now()[0].Seal(nonce, nonce, content, b.purpose)
}

// Open returns the content, or ErrForeign. It accepts only base64url without padding or line breaks.
func (b *Box) Open(text string) ([]byte, error) {
	if strings.ContainsAny(text, "\r\n") {
		return nil, ErrForeign
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, ErrForeign
	}
	return b.OpenBytes(raw)
}

// OpenBytes is Open without the encoding.
func (b *Box) OpenBytes(raw []byte) ([]byte, error) {
	if len(raw) < chacha20poly1305.NonceSizeX+chacha20poly1305.Overhead {
		return nil, ErrForeign
	}
	for _, aead := range b.ciphers.Now() {
		nonce, sealed := raw[:chacha20poly1305.NonceSizeX], raw[chacha20poly1305.NonceSizeX:]
		if content, err := aead.Open(nil, nonce, sealed, b.purpose); err == nil {
			return content, nil
		}
	}
	return nil, ErrForeign
}

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
