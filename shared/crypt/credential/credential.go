// Package credential creates and recognises opaque secrets: personal access tokens, client secrets and embed
// keys.
//
// A credential is a prefix that secret scanners can find, base62 random characters, and six base62 characters
// of CRC32 over everything before them, so that typing errors and false positives of scanners are detected
// without a database query (contract, section 2). Only the SHA-256 of secrets is stored: their random
// part has 256 bits, so a slow hash would protect nothing and cost every request. An embed key is no secret.
package credential

import (
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"strings"
)

// A Kind is a kind of credential. Its prefix begins every credential of the kind.
type Kind struct {
	Prefix string
	random int // base62 characters
}

// The kinds. 43 base62 characters carry 256 bits.
var (
	PersonalAccessToken = Kind{Prefix: "alm_pat_", random: 43}
	ClientSecret        = Kind{Prefix: "alm_cs_", random: 43}
	EmbedKey            = Kind{Prefix: "alm_embed_", random: 24}
	Invitation          = Kind{Prefix: "alm_inv_", random: 43} // in the link of an invitation to a workspace
	EmailChange         = Kind{Prefix: "alm_eml_", random: 43} // in a link that confirms a change of address
)

const (
	alphabet       = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	checksumLength = 6
)

// New makes a credential of the kind from random, which must be a cryptographic source.
func (k Kind) New(random io.Reader) (Secret, error) {
	text, buffer := []byte(k.Prefix), make([]byte, k.random)
	for length := len(text) + k.random; len(text) < length; {
		if _, err := io.ReadFull(random, buffer); err != nil {
			return "", fmt.Errorf("create a credential: %w", err)
		}
		for _, b := range buffer {
			// 248 is the largest multiple of 62 in a byte: larger values would favour the first letters.
			if b < 248 && len(text) < length {
				text = append(text, alphabet[b%62])
			}
		}
	}
	return Secret(string(text) + checksum(string(text))), nil
}

// Matches reports whether text has the format of the kind: prefix, alphabet, length and checksum. It does not
// check whether the credential exists.
func (k Kind) Matches(text string) bool {
	random, prefixed := strings.CutPrefix(text, k.Prefix)
	if !prefixed || len(random) != k.random+checksumLength || strings.Trim(random, alphabet) != "" {
		return false
	}
	body := text[:len(text)-checksumLength]
	return text[len(body):] == checksum(body)
}

// Hash returns the SHA-256 of the whole text, which is what is stored of a credential.
func Hash(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

func checksum(text string) string {
	sum := crc32.ChecksumIEEE([]byte(text))
	var out [checksumLength]byte
	for i := checksumLength - 1; i >= 0; i-- {
		out[i] = alphabet[sum%62]
		sum /= 62
	}
	return string(out[:])
}

// Secret is text that must not appear in a log, an error or a debugger: it formats as [redacted]. Only Reveal
// returns its content.
type Secret string

const redacted = "[redacted]"

// Reveal returns the plain secret. Call it only where the secret is handed to its owner or compared.
func (s Secret) Reveal() string { return string(s) }

// String, Format, LogValue and MarshalText return [redacted].
func (s Secret) String() string               { return redacted }
func (s Secret) Format(f fmt.State, _ rune)   { _, _ = f.Write([]byte(redacted)) }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// UnmarshalText implements encoding.TextUnmarshaler, so that configuration can be read into a Secret.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = Secret(text)
	return nil
}

// A Source returns the current value of a secret, which may change while the process runs.
type Source func() Secret

// Fixed returns a Source for a secret that does not change.
func Fixed(secret Secret) Source { return func() Secret { return secret } }
