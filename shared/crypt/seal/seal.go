// Package seal encrypts and authenticates opaque texts that the server later receives back.
//
// Cursors, consent tickets, submission tokens and stored signing keys are sealed with XChaCha20-Poly1305
// under a key derived (HKDF-SHA256) from a configured key, with the purpose as associated data, so that a
// text sealed for one purpose cannot be opened for another. Keys rotate: the first key seals, all keys open.
// Keys can be replaced while the process runs (Keys.Replace).
package seal

import (
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"
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
	nonce := make(
		[]byte,
		chacha20poly1305.NonceSizeX,
		chacha20poly1305.NonceSizeX+len(content)+chacha20poly1305.Overhead,
	)
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
