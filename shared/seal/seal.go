// Package seal encrypts and authenticates opaque texts that the server later receives back.
//
// Cursors, consent tickets, submission tokens and stored signing keys are sealed with XChaCha20-Poly1305
// under a key derived (HKDF-SHA256) from a configured key, with the purpose as associated data, so that a
// text sealed for one purpose cannot be opened for another. Keys rotate: the first key seals, all keys open.
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

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/almonerhq/almoner/shared/credential"
)

// ErrForeign reports that a text was not sealed by this server for this purpose, or was altered.
var ErrForeign = errors.New("not sealed by this server for this purpose")

// Keys are master keys of 32 bytes each, newest first.
type Keys [][]byte

// ParseKeys parses a comma-separated list of base64url keys of 32 bytes each, newest first.
func ParseKeys(text credential.Secret) (Keys, error) {
	var keys Keys
	for _, part := range strings.Split(text.Reveal(), ",") {
		key, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimRight(strings.TrimSpace(part), "="))
		if err != nil || len(key) != 32 {
			return nil, errors.New(
				"each key is 32 bytes in base64url; make one with: openssl rand 32 | basenc --base64url",
			)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// Derive returns a key of 32 bytes for the purpose, for each master key.
func (k Keys) Derive(purpose string) ([][]byte, error) {
	out := make([][]byte, len(k))
	for i, master := range k {
		derived, err := hkdf.Key(sha256.New, master, nil, "almoner "+purpose, 32)
		if err != nil {
			return nil, fmt.Errorf("derive the key for %s: %w", purpose, err)
		}
		out[i] = derived
	}
	return out, nil
}

// A Box seals and opens for one purpose. It is safe for concurrent use.
type Box struct {
	purpose []byte
	aeads   []cipher.AEAD
}

// NewBox derives the purpose's keys from the master keys.
func NewBox(keys Keys, purpose string) (*Box, error) {
	if len(keys) == 0 {
		return nil, errors.New("no key to seal with")
	}
	derived, err := keys.Derive(purpose)
	if err != nil {
		return nil, err
	}
	box := &Box{purpose: []byte(purpose)}
	for _, key := range derived {
		aead, err := chacha20poly1305.NewX(key)
		if err != nil {
			return nil, fmt.Errorf("key for %s: %w", purpose, err)
		}
		box.aeads = append(box.aeads, aead)
	}
	return box, nil
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
	return b.aeads[0].Seal(nonce, nonce, content, b.purpose)
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
	for _, aead := range b.aeads {
		nonce, sealed := raw[:chacha20poly1305.NonceSizeX], raw[chacha20poly1305.NonceSizeX:]
		if content, err := aead.Open(nil, nonce, sealed, b.purpose); err == nil {
			return content, nil
		}
	}
	return nil, ErrForeign
}
