package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"strings"
	"testing"
)

// A JWT is a decoded token. It is decoded without the product's libraries.
type JWT struct {
	Header map[string]any
	Claims map[string]any

	signed    string
	signature []byte
}

// Decode decodes a compact JWS without verifying it.
func Decode(t testing.TB, token string) JWT {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("an access token has %d parts", len(parts))
	}
	out := JWT{signed: parts[0] + "." + parts[1]}
	out.Header, out.Claims = decodePart(t, parts[0]), decodePart(t, parts[1])
	signature, err := base64.RawURLEncoding.Strict().DecodeString(parts[2])
	if err != nil {
		t.Fatal("the signature of an access token is not base64url")
	}
	out.signature = signature
	return out
}

func decodePart(t testing.TB, part string) map[string]any {
	t.Helper()
	content, err := base64.RawURLEncoding.Strict().DecodeString(part)
	var out map[string]any
	if err != nil || json.Unmarshal(content, &out) != nil {
		t.Fatal("a part of an access token is not JSON in base64url")
	}
	return out
}

// A JWK is a public key as published in JWKS.
type JWK map[string]any

// SignedBy reports whether the key made the signature (ES256, RFC 7518, section 3.4).
func (j JWT) SignedBy(t testing.TB, key JWK) bool {
	t.Helper()
	if len(j.signature) != 64 {
		return false
	}
	point := append(append([]byte{4}, coordinate(t, key, "x")...), coordinate(t, key, "y")...)
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		t.Fatal("a key of JWKS is not a point of P-256")
	}
	digest := sha256.Sum256([]byte(j.signed))
	return ecdsa.Verify(public, digest[:], new(big.Int).SetBytes(j.signature[:32]),
		new(big.Int).SetBytes(j.signature[32:]))
}

func coordinate(t testing.TB, key JWK, name string) []byte {
	t.Helper()
	text, _ := key[name].(string)
	content, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(content) != 32 {
		t.Fatalf("%s of a key of JWKS is not 32 bytes", name)
	}
	return content
}

// GrantOf returns the id of the grant that an access token belongs to.
func GrantOf(t testing.TB, accessToken string) string {
	t.Helper()
	id, _ := Decode(t, accessToken).Claims["grant_id"].(string)
	if id == "" {
		t.Fatal("an access token without grant_id")
	}
	return id
}
