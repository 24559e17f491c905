// Package accesstoken signs and verifies access tokens.
//
// Access tokens are JWTs of RFC 9068 (typ at+jwt), signed with ES256. authserver signs them and both services verify
// them; both sides are in this package so that they cannot diverge. A verified token proves only what was granted:
// whether the grant is still active and what its user may do is read from Postgres at each request (package standing).
package accesstoken

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// Type is the typ header (RFC 9068, section 2.1).
const Type = "at+jwt"

// Algorithm is the only algorithm that is used to sign and accepted.
const Algorithm = jose.ES256

// Claims are the claims of a token (contract, section 2). Times are whole seconds.
type Claims struct {
	Issuer      string    `json:"iss"`
	Subject     uuid.UUID `json:"sub"` // the user
	Audience    string    `json:"aud"` // the resource indicator, exactly one
	Expires     time.Time `json:"-"`
	IssuedAt    time.Time `json:"-"`
	ID          string    `json:"jti"`
	ClientID    string    `json:"client_id"`
	Scope       perm.Set  `json:"-"`
	WorkspaceID uuid.UUID `json:"tenant_id"`
	GrantID     uuid.UUID `json:"grant_id"`
	KeyID       string    `json:"-"` // of the signing key: set by Verify, ignored by Sign
}

// ClientID returns the stored identifier of the client with this client_id. A registered client's client_id is that
// identifier in canonical form. A client known by its metadata document has the document's address as client_id, and
// its identifier is a hash of the address (UUID version 8; RFC 9562, section 5.8), so that all processes of both
// services compute the same.
func ClientID(text string) (uuid.UUID, error) {
	if IsAddress(text) {
		return uuid.NewHash(sha256.New(), uuid.NameSpaceURL, []byte(text), 8), nil
	}
	return RegisteredClientID(text)
}

// IsAddress reports whether a client_id is the address of a metadata document. It does not check whether the address is
// valid.
func IsAddress(text string) bool { return strings.HasPrefix(text, "https://") }

// RegisteredClientID returns the identifier of a registered client. Client identifiers are compared as text (RFC 6749,
// section 2.2), so it accepts only the form that String returns.
func RegisteredClientID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || id.String() != text {
		return uuid.Nil, errors.New("not a UUID in its canonical form")
	}
	return id, nil
}

// A payload is the JSON of Claims. Its times are in seconds since 1970.
type payload struct {
	Claims
	Expires  int64  `json:"exp"`
	IssuedAt int64  `json:"iat"`
	Scope    string `json:"scope"`
}

// complete reports whether the payload has every claim but the scope, which may be empty.
func (p payload) complete() bool {
	return p.Issuer != "" && p.Subject != uuid.Nil && p.Audience != "" && p.Expires > 0 && p.IssuedAt > 0 &&
		p.ID != "" && p.ClientID != "" && p.WorkspaceID != uuid.Nil && p.GrantID != uuid.Nil
}

func (p payload) claims(keyID string) Claims {
	claims := p.Claims
	claims.Expires, claims.IssuedAt = time.Unix(p.Expires, 0).UTC(), time.Unix(p.IssuedAt, 0).UTC()
	claims.Scope, claims.KeyID = perm.ParseScope(p.Scope), keyID
	return claims
}

// A SigningKey signs access tokens.
type SigningKey struct {
	id     string
	signer jose.Signer
}

// NewSigningKey makes a SigningKey from a private ES256 key with its kid.
func NewSigningKey(key jose.JSONWebKey) (SigningKey, error) {
	private, ok := key.Key.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() || key.KeyID == "" {
		return SigningKey{}, errors.New("signing key: not a private key for ES256 with a kid")
	}
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: Algorithm, Key: jose.JSONWebKey{Key: private, KeyID: key.KeyID}},
		(&jose.SignerOptions{}).WithType(Type),
	)
	if err != nil {
		return SigningKey{}, fmt.Errorf("signing key: %w", err)
	}
	return SigningKey{key.KeyID, signer}, nil
}

// KeyID returns the kid of the key.
func (s SigningKey) KeyID() string { return s.id }

// Sign returns a signed token with the claims.
func Sign(key SigningKey, c Claims) (credential.Secret, error) {
	content, err := json.Marshal(payload{c, c.Expires.Unix(), c.IssuedAt.Unix(), c.Scope.Scope()})
	if err != nil {
		return "", fmt.Errorf("build access token: %w", err)
	}
	signed, err := key.signer.Sign(content)
	if err != nil {
		return "", fmt.Errorf("sign access token: %w", err)
	}
	text, err := signed.CompactSerialize()
	return credential.Secret(text), err
}

// Errors of Verify. ErrUnknownKey is separate because the caller may fetch the keys again, once.
var (
	ErrInvalid    = errors.New("not a valid access token")
	ErrUnknownKey = errors.New("access token signed with an unknown key")
	ErrExpired    = errors.New("access token expired")
)

// leeway is the accepted difference between the clocks of two machines.
const leeway = 5 * time.Second

// Verify returns the claims of a token that one of keys signed for issuer and that has not expired at now. With
// ErrExpired it returns them too. The caller must compare the audience, byte by byte.
func Verify(text string, keys jose.JSONWebKeySet, issuer string, now time.Time) (Claims, error) {
	claims, err := read(text)
	if err != nil {
		return Claims{}, err
	}
	named := keys.Key(claims.KeyID)
	if len(named) == 0 {
		return Claims{}, ErrUnknownKey
	}
	signed, err := jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{Algorithm})
	if err == nil {
		_, err = signed.Verify(named[0])
	}
	if err != nil || claims.Issuer != issuer {
		return Claims{}, ErrInvalid
	}
	if !now.Before(claims.Expires.Add(leeway)) {
		return claims, ErrExpired
	}
	if claims.IssuedAt.After(now.Add(leeway)) {
		return Claims{}, ErrInvalid
	}
	return claims, nil
}

// Keys holds the trusted public keys and the tokens that were verified with them. It is safe for concurrent use.
type Keys struct {
	set jose.JSONWebKeySet
	// verified caches the claims of tokens with a valid signature, because checking an ES256 signature costs more than
	// the rest of a request. Permissions are not cached: each request reads them from Postgres. The cache belongs to
	// one set of keys, so that removing a key also removes its tokens.
	verified *lru.Cache[[sha256.Size]byte, Claims]
}

// maxVerified is the maximum number of remembered tokens.
const maxVerified = 8192

// NewKeys makes Keys of a set. The set must not be modified afterwards.
func NewKeys(set jose.JSONWebKeySet) *Keys {
	verified, _ := lru.New[[sha256.Size]byte, Claims](maxVerified) // fails only if the size is not positive
	return &Keys{set: set, verified: verified}
}

// Len returns the number of keys.
func (k *Keys) Len() int { return len(k.set.Keys) }

// Verify is like the function Verify, but checks the signature of each token only once.
func (k *Keys) Verify(text, issuer string, now time.Time) (Claims, error) {
	key := sha256.Sum256([]byte(text))
	if claims, found := k.verified.Get(key); found && now.Before(claims.Expires) && claims.Issuer == issuer {
		return claims, nil
	}
	claims, err := Verify(text, k.set, issuer, now)
	if err == nil {
		k.verified.Add(key, claims)
	}
	return claims, err
}

// maxLength bounds the length of a token: our tokens have about 700 characters.
const maxLength = 4096

type header struct {
	Algorithm string   `json:"alg"`
	Type      string   `json:"typ"`
	KeyID     string   `json:"kid"`
	Critical  []string `json:"crit"`
}

// read returns the claims of a token, without verifying it. It is stricter than go-jose, which accepts any typ (RFC
// 8725, section 3): it requires the form that DecodeCompact accepts, no claims whose names differ only in case, the
// members alg, typ and kid, no crit, and claims of the types that Sign writes.
func read(text string) (Claims, error) {
	var h header
	var p payload
	decoded := DecodeCompact(text, maxLength, &h, &p, json.MatchCaseInsensitiveNames(true))
	if !decoded || h.Algorithm != string(Algorithm) || h.Type != Type ||
		h.KeyID == "" || h.Critical != nil || !p.complete() {
		return Claims{}, ErrInvalid
	}
	return p.claims(h.KeyID), nil
}

// DecodeCompact decodes the header and the payload of a JWS of at most maxBytes bytes, without verifying it. It reports
// whether the JWS has compact form, base64url without padding and line breaks, and JSON objects without duplicate
// members (JSON version 2).
func DecodeCompact(text string, maxBytes int, header, payload any, options ...json.Options) bool {
	parts := strings.Split(text, ".")
	if len(text) > maxBytes || len(parts) != 3 || strings.ContainsAny(text, "\r\n") {
		return false
	}
	for i, into := range []any{header, payload, nil} {
		raw, err := base64.RawURLEncoding.Strict().DecodeString(parts[i])
		if err != nil || len(raw) == 0 || (into != nil && json.Unmarshal(raw, into, options...) != nil) {
			return false
		}
	}
	return true
}
