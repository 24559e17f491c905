package demo

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

	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// seedLength is the length of a seed in bytes.
const seedLength = 32

// A Seed derives an installation's secrets (HKDF-SHA256, RFC 5869), with one label for each: keys, passwords, demo
// tokens and IDs. So a second start finds the same values without storing them elsewhere, and after removing the file
// the next installation shares nothing with the former one.
type Seed struct{ secret [seedLength]byte }

// LoadSeed reads the seed from the file, which the first call creates.
func LoadSeed(path string) (Seed, error) {
	var s Seed
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		_, _ = rand.Read(s.secret[:]) // never fails (crypto/rand)
		// Atomically: data encrypted under half a seed would be lost.
		return s, localstore.WriteWhole(path, base64.RawURLEncoding.EncodeToString(s.secret[:])+"\n")
	}
	if err != nil {
		return s, fmt.Errorf("read the seed: %w", err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimSpace(string(content)))
	if err != nil || len(raw) != seedLength {
		return s, fmt.Errorf("%s is not a seed of 32 bytes in base64url: restore the file, or remove it to start over",
			path)
	}
	copy(s.secret[:], raw)
	return s, nil
}

func (s Seed) derive(label string, size int) []byte {
	out, err := hkdf.Key(sha256.New, s.secret[:], nil, "almoner local "+label, size)
	if err != nil {
		panic(err) // only for more than 8160 bytes; every size here is a smaller constant
	}
	return out
}

// Fingerprint returns a name of the installation that reveals no secret.
func (s Seed) Fingerprint() string { return hex.EncodeToString(s.derive("fingerprint", 8)) }

// Key returns a key of 32 bytes in base64url, as ALMONER_KEYS expects it.
func (s Seed) Key(label string) string {
	return base64.RawURLEncoding.EncodeToString(s.derive("key "+label, 32))
}

// Hex returns a secret of 128 bits that needs no quoting.
func (s Seed) Hex(label string) string { return hex.EncodeToString(s.derive("hex "+label, 16)) }

// Password returns a password of 100 bits that is easy to read and type: four groups of five letters and digits.
func (s Seed) Password(label string) string {
	const letters = "abcdefghjkmnpqrstuvwxyz023456789" // 32 characters that are hard to confuse
	var out strings.Builder
	for i, b := range s.derive("password "+label, 20) {
		if i > 0 && i%5 == 0 {
			out.WriteByte('-')
		}
		out.WriteByte(letters[b%32])
	}
	return out.String()
}

// UUID returns an identifier.
func (s Seed) UUID(label string) uuid.UUID {
	id := uuid.UUID(s.derive("uuid "+label, 16))
	id[6] = id[6]&0x0f | 0x80 // version 8: custom (RFC 9562, section 5.8)
	id[8] = id[8]&0x3f | 0x80
	return id
}

// Reader returns a source of randomness for creating credentials.
func (s Seed) Reader(label string) io.Reader {
	return bytes.NewReader(s.derive("reader "+label, 4096))
}
