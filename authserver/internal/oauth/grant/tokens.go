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

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
)

// A Token is a parsed authorization code or refresh token.
type Token struct {
	WorkspaceID uuid.UUID // zero in a token of the former format, until its grant is located
	GrantID     uuid.UUID
	Generation  uint32 // 0 in a code
	Hash        []byte // SHA-256 of its random part, stored in both stores
	random      credential.Secret
	former      bool // the token has the former format, and its successor will too
}

// Key returns the key of the token's grant.
func (t Token) Key() Key { return Key{t.WorkspaceID, t.GrantID} }

// A TokenKind is the prefix of a token, and part of what its MAC covers.
type TokenKind string

// The kinds (contract, section 2).
const (
	Code    TokenKind = "alm_ac_"
	Refresh TokenKind = "alm_rt_"
)

// ErrForged reports that this server did not issue a token. It is detected without I/O.
var ErrForged = errors.New("not a token of this server")

// 102 bytes make exactly 136 base64url characters, and 84 bytes 112: no padding and no spare bits, so each token has
// exactly one encoding. The length distinguishes the two formats.
const (
	idSize       = 16
	randomSize   = 32
	formerBody   = idSize + 4 + randomSize
	versionSize  = 2
	bodySize     = versionSize + idSize + formerBody
	tokenVersion = 2
)

// A TokenCodec creates and reads tokens: a prefix, then base64url of the version of the format, the workspace, the
// grant id, the generation, 32 random bytes and an HMAC-SHA256 over the kind and all of that. The former format has
// neither version nor workspace. Because of the MAC, garbage is refused within microseconds, and a superseded token is
// recognised without a stored row. It is safe for concurrent use.
type TokenCodec struct{ keys *seal.Derived[[][][]byte] }

// The keys of a TokenCodec. The keys of each purpose are in the order of the master keys.
const (
	tokenKeys = iota
	successorKeys
)

// NewTokenCodec derives the keys from the master keys. The first creates tokens; all verify them.
func NewTokenCodec(keys seal.Keys) (*TokenCodec, error) {
	derived, err := seal.Derive(keys, seal.Purposes("grant tokens", "grant token successors"))
	if err != nil {
		return nil, fmt.Errorf("keys of the grant tokens: %w", err)
	}
	return &TokenCodec{derived}, nil
}

// New returns a new token, as text and as a Token. If the key has no workspace, the token has the former format.
func (t *TokenCodec) New(kind TokenKind, key Key, generation uint32) (credential.Secret, Token) {
	var random [randomSize]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	return makeToken(t.keys.Now()[tokenKeys][0], kind, key, generation, random[:])
}

// makeToken returns the token with this random part.
func makeToken(
	secret []byte, kind TokenKind, key Key, generation uint32, random []byte,
) (credential.Secret, Token) {
	raw := make([]byte, 0, bodySize+sha256.Size)
	if key.WorkspaceID != uuid.Nil {
		raw = binary.BigEndian.AppendUint16(raw, tokenVersion)
		raw = append(raw, key.WorkspaceID[:]...)
	}
	raw = append(raw, key.ID[:]...)
	raw = binary.BigEndian.AppendUint32(raw, generation)
	raw = append(raw, random...)
	token, _ := tokenOf(raw)
	raw = append(raw, mac(secret, kind, raw)...)
	return credential.Secret(string(kind) + base64.RawURLEncoding.EncodeToString(raw)), token
}

// Read parses a token without I/O, or returns ErrForged.
func (t *TokenCodec) Read(kind TokenKind, text string) (Token, error) {
	encoded, ok := strings.CutPrefix(text, string(kind))
	size := base64.RawURLEncoding.DecodedLen(len(encoded))
	if !ok || (size != bodySize+sha256.Size && size != formerBody+sha256.Size) ||
		len(encoded) != base64.RawURLEncoding.EncodedLen(size) {
		return Token{}, ErrForged
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || len(raw) != size { // shorter: the decoder skipped line breaks
		return Token{}, ErrForged
	}
	body, authentic := raw[:size-sha256.Size], 0
	for _, key := range t.keys.Now()[tokenKeys] {
		authentic |= subtle.ConstantTimeCompare(mac(key, kind, body), raw[len(body):])
	}
	if authentic != 1 {
		return Token{}, ErrForged
	}
	return tokenOf(body)
}

// tokenOf parses the bytes before the MAC. It returns ErrForged for a version that this program does not know.
func tokenOf(body []byte) (Token, error) {
	token := Token{former: len(body) == formerBody}
	if !token.former {
		if binary.BigEndian.Uint16(body) != tokenVersion {
			return Token{}, ErrForged
		}
		token.WorkspaceID = uuid.UUID(body[versionSize : versionSize+idSize])
		body = body[versionSize+idSize:]
	}
	sum := sha256.Sum256(body[idSize+4:])
	token.GrantID = uuid.UUID(body[:idSize])
	token.Generation = binary.BigEndian.Uint32(body[idSize:])
	token.Hash = sum[:]
	token.random = credential.Secret(body[idSize+4:])
	return token, nil
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

// A Proof identifies the sender of a request. A repeated request gets the refresh token of the first only if it has the
// same Proof (G11). A request with the zero Proof cannot be repeated. The scope of a refresh is part of its Proof, so
// that a request with another scope does not repeat it.
type Proof struct{ digest string }

// ProofByKey returns the proof of a request with this Idempotency-Key.
func ProofByKey(key credential.Secret, scope perm.Set) Proof {
	return proofOf("idempotency key", key.Reveal(), scope)
}

// ProofByClient returns the proof of a request whose client has authenticated with a fresh signature.
func ProofByClient(clientID string, scope perm.Set) Proof { return proofOf("client", clientID, scope) }

func proofOf(kind, text string, scope perm.Set) Proof {
	sum := sha256.Sum256([]byte(kind + "\x00" + text))
	if len(scope) > 0 { // that of most refreshes is empty
		sum = sha256.Sum256([]byte("scope\x00" + string(sum[:]) + scope.Scope()))
	}
	return Proof{string(sum[:])}
}

// successors are the refresh tokens that may follow a credential, one for each master key, and their hashes, which the
// stores hold. The first is stored. A process with the same master keys in another order stores another one for the
// same request.
type successors struct {
	secrets []credential.Secret
	hashes  [][]byte
}

// successorsOf returns the tokens that may follow a presented credential. With a proof, they are derived from the
// credential and the proof, so that a repeated request gets the same tokens although they are not stored. Their random
// parts, and therefore their hashes, are the same in both formats, so that processes of two releases recognise each
// other's tokens. Without a proof, there is one random token.
func (t *TokenCodec) successorsOf(presented Token, proof Proof) successors {
	generation := presented.Generation + 1
	grant := presented.Key()
	if presented.former {
		grant.WorkspaceID = uuid.Nil
	}
	if proof.digest == "" {
		secret, token := t.New(Refresh, grant, generation)
		return successors{[]credential.Secret{secret}, [][]byte{token.Hash}}
	}
	keys := t.keys.Now()
	count := len(keys[tokenKeys])
	next := successors{make([]credential.Secret, count), make([][]byte, count)}
	for i, key := range keys[successorKeys] {
		h := hmac.New(sha256.New, key)
		h.Write(presented.GrantID[:])
		_ = binary.Write(h, binary.BigEndian, generation)
		h.Write([]byte(presented.random.Reveal()))
		h.Write([]byte(proof.digest))
		secret, token := makeToken(keys[tokenKeys][i], Refresh, grant, generation, h.Sum(nil))
		next.secrets[i], next.hashes[i] = secret, token.Hash
	}
	return next
}
