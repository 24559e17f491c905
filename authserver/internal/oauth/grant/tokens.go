package grant

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/seal"
)

// A Token is a parsed authorization code or refresh token.
type Token struct {
	GrantID    uuid.UUID
	Generation uint32 // 0 in a code
	Hash       []byte // SHA-256 of its random part, which the stores hold
	random     credential.Secret
}

// A TokenKind is the prefix of a token, and part of what its MAC covers.
type TokenKind string

// The kinds (contract, section 2).
const (
	Code    TokenKind = "alm_ac_"
	Refresh TokenKind = "alm_rt_"
)

// ErrForged reports that this server did not issue a token. It is detected without I/O.
var ErrForged = errors.New("not a token of this server")

// 84 bytes make exactly 112 base64url characters: no padding and no spare bits, so each token has one spelling.
const (
	idSize     = 16
	randomSize = 32
	bodySize   = idSize + 4 + randomSize
	tokenSize  = bodySize + sha256.Size
)

// A TokenCodec creates and reads tokens: a prefix, then base64url of the grant id, the generation, 32 random bytes and
// an HMAC-SHA256 over the kind and all of that. Because of the MAC, garbage is refused within microseconds, and a
// superseded token is recognised without a stored row. It is safe for concurrent use.
type TokenCodec struct{ keys *seal.Derived[[][][]byte] }

// NewTokenCodec derives the keys from the master keys. The first creates tokens; all verify them.
func NewTokenCodec(keys seal.Keys) (*TokenCodec, error) {
	derived, err := seal.Derive(keys, seal.Purposes("grant tokens", "grant token successors"))
	if err != nil {
		return nil, fmt.Errorf("keys of the grant tokens: %w", err)
	}
	return &TokenCodec{derived}, nil
}

// current returns the keys of tokens and the keys of successors, each in the order of the current master keys.
func (c *TokenCodec) current() (tokens, successors [][]byte) {
	keys := c.keys.Now()
	return keys[0], keys[1]
}

// New returns a new token, and what the stores hold of it.
func (c *TokenCodec) New(kind TokenKind, id uuid.UUID, generation uint32) (credential.Secret, Token) {
	var random [randomSize]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	keys, _ := c.current()
	return makeToken(keys[0], kind, id, generation, random[:])
}

// makeToken returns the token with this random part.
func makeToken(key []byte, kind TokenKind, id uuid.UUID, generation uint32, random []byte) (credential.Secret, Token) {
	raw := make([]byte, bodySize, tokenSize)
	copy(raw, id[:])
	binary.BigEndian.PutUint32(raw[idSize:], generation)
	copy(raw[idSize+4:], random)
	token := tokenOf(raw)
	raw = append(raw, mac(key, kind, raw)...)
	return credential.Secret(string(kind) + base64.RawURLEncoding.EncodeToString(raw)), token
}

// Read parses a token, or returns ErrForged.
func (c *TokenCodec) Read(kind TokenKind, text string) (Token, error) {
	encoded, ok := strings.CutPrefix(text, string(kind))
	if !ok || len(encoded) != base64.RawURLEncoding.EncodedLen(tokenSize) {
		return Token{}, ErrForged
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || len(raw) != tokenSize { // shorter: the decoder skipped line breaks
		return Token{}, ErrForged
	}
	body, authentic := raw[:bodySize], 0
	keys, _ := c.current()
	for _, key := range keys {
		authentic |= subtle.ConstantTimeCompare(mac(key, kind, body), raw[bodySize:])
	}
	if authentic != 1 {
		return Token{}, ErrForged
	}
	return tokenOf(body), nil
}

func tokenOf(body []byte) Token {
	sum := sha256.Sum256(body[idSize+4 : bodySize])
	return Token{
		GrantID:    uuid.UUID(body[:idSize]),
		Generation: binary.BigEndian.Uint32(body[idSize:]),
		Hash:       sum[:],
		random:     credential.Secret(body[idSize+4 : bodySize]),
	}
}

func mac(key []byte, kind TokenKind, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(kind))
	h.Write(body)
	return h.Sum(nil)
}

// Binding returns what Postgres stores of a code: one hash over the code, its redirect URI and the PKCE challenge (""
// for none). It distinguishes a second redemption from a wrong guess even if Redis has lost its data (G1).
func Binding(codeHash []byte, redirectURI, challenge string) []byte {
	h := sha256.New()
	h.Write(codeHash)
	_ = binary.Write(h, binary.BigEndian, uint32(len(redirectURI)))
	h.Write([]byte(redirectURI))
	h.Write([]byte(challenge))
	return h.Sum(nil)
}

// ChallengeOf returns the S256 challenge of a verifier (RFC 7636, section 4.2), or "" for no verifier.
func ChallengeOf(verifier credential.Secret) string {
	if verifier == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(verifier.Reveal()))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
