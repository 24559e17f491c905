package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

func encodePart(t *testing.T, value any) string {
	t.Helper()
	content, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(content)
}

// resigned returns a token with changed header and claims, signed with a key that is not in JWKS.
func resigned(t *testing.T, good harness.JWT, header, claims map[string]any) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	h, c := maps.Clone(good.Header), maps.Clone(good.Claims)
	maps.Copy(h, header)
	maps.Copy(c, claims)
	signed := encodePart(t, h) + "." + encodePart(t, c)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// forgeries returns invalid access tokens that a lenient verifier could accept.
func forgeries(t *testing.T, p *harness.Product, token string) map[string]string {
	t.Helper()
	good := harness.Decode(t, token)
	parts := strings.Split(token, ".")
	jwks := p.API().Get(t, "/v1/account/oauth/jwks").Object(t)
	none, hmacHeader := maps.Clone(good.Header), maps.Clone(good.Header)
	none["alg"], hmacHeader["alg"] = "none", "HS256"
	later := maps.Clone(good.Claims)
	later["exp"] = time.Now().Add(1000 * time.Hour).Unix()
	signed := encodePart(t, hmacHeader) + "." + parts[1]
	mac := hmac.New(sha256.New, []byte(encodePart(t, jwks["keys"].([]any)[0])))
	mac.Write([]byte(signed))
	return map[string]string{
		"no signature":              parts[0] + "." + parts[1] + ".",
		"two parts":                 parts[0] + "." + parts[1],
		"alg none":                  encodePart(t, none) + "." + parts[1] + ".",
		"alg none, old signature":   encodePart(t, none) + "." + parts[1] + "." + parts[2],
		"HMAC of the public key":    signed + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)),
		"claims changed":            parts[0] + "." + encodePart(t, later) + "." + parts[2],
		"signature altered":         parts[0] + "." + parts[1] + "." + alterAt(parts[2], 20),
		"signature, trailing bits":  parts[0] + "." + parts[1] + "." + lastBitFlipped(parts[2]),
		"padded":                    token + "==",
		"another's key, same kid":   resigned(t, good, nil, nil),
		"another's key, other kid":  resigned(t, good, map[string]any{"kid": "mine"}, nil),
		"another's key, in the jwk": resigned(t, good, map[string]any{"jwk": jwks["keys"].([]any)[0]}, nil),
		"typ JWT":                   resigned(t, good, map[string]any{"typ": "JWT"}, nil),
		"as JSON": `{"payload":"` + parts[1] +
			`","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
	}
}

// otherForm returns the other ECDSA signature that is valid for the same message: (r, n-s).
func otherForm(t *testing.T, signature string) string {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil || len(raw) != 64 {
		t.Fatal("a signature that is not ES256")
	}
	s := new(big.Int).Sub(elliptic.P256().Params().N, new(big.Int).SetBytes(raw[32:]))
	return base64.RawURLEncoding.EncodeToString(append(raw[:32:32], s.FillBytes(make([]byte, 32))...))
}
