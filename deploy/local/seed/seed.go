// Package seed answers: which secrets does this local installation use?
//
// Everything random about an installation comes from one file of 32 random bytes: keys, passwords, demo tokens, ids.
// So a second start finds the same ones without any of them being written anywhere else, and removing the file
// makes an installation that shares nothing with the former one.
package seed

import (
	"bytes"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/uuid"
)

const length = 32

// A Seed is what an installation's secrets are derived from (HKDF-SHA256, RFC 5869), one label for each secret.
type Seed struct{ secret [length]byte }

// Load reads the seed in the file, which it makes at the first call.
func Load(path string) (Seed, error) {
	var s Seed
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		_, _ = rand.Read(s.secret[:]) // never fails (crypto/rand)
		return s, s.write(path)
	}
	if err != nil {
		return s, fmt.Errorf("read the seed: %w", err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimSpace(string(content)))
	if err != nil || len(raw) != length {
		return s, fmt.Errorf(
			"%s is no seed of 32 bytes in base64url: bring the file back, or remove it to begin afresh",
			path,
		)
	}
	copy(s.secret[:], raw)
	return s, nil
}

// write lets no crash leave half a seed: data encrypted under it would be lost.
func (s Seed) write(path string) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, []byte(base64.RawURLEncoding.EncodeToString(s.secret[:])+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the seed: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write the seed: %w", err)
	}
	return nil
}

func (s Seed) derive(label string, size int) []byte {
	out, err := hkdf.Key(sha256.New, s.secret[:], nil, "almoner local "+label, size)
	if err != nil {
		panic(err) // only for more than 8160 bytes, and every size here is a constant
	}
	return out
}

// Fingerprint names the installation without giving anything away.
func (s Seed) Fingerprint() string { return hex.EncodeToString(s.derive("fingerprint", 8)) }

// Key is a key of 32 bytes in base64url, as ALMONER_KEYS takes it.
func (s Seed) Key(label string) string {
	return base64.RawURLEncoding.EncodeToString(s.derive("key "+label, 32))
}

// Hex is a secret of 128 bits that needs no quoting anywhere.
func (s Seed) Hex(label string) string { return hex.EncodeToString(s.derive("hex "+label, 16)) }

// Password is a password of 100 bits that people can read and type: four groups of five letters and digits.
func (s Seed) Password(label string) string {
	const letters = "abcdefghjkmnpqrstuvwxyz023456789" // 32 of them, none mistaken for another
	var out strings.Builder
	for i, b := range s.derive("password "+label, 20) {
		if i > 0 && i%5 == 0 {
			out.WriteByte('-')
		}
		out.WriteByte(letters[b%32])
	}
	return out.String()
}

// UUID is an identifier.
func (s Seed) UUID(label string) uuid.UUID {
	id := uuid.UUID(s.derive("uuid "+label, 16))
	id[6] = id[6]&0x0f | 0x80 // version 8: made in a way of our own (RFC 9562, section 5.8)
	id[8] = id[8]&0x3f | 0x80
	return id
}

// Reader is a source of randomness for whoever mints credentials from one.
func (s Seed) Reader(label string) io.Reader {
	return bytes.NewReader(s.derive("reader "+label, 4096))
}
