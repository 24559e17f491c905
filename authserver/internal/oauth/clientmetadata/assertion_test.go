package clientmetadata

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

const (
	clientID = "https://chatgpt.com/oauth/client.json"
	issuer   = "https://api.example.org"
	endpoint = issuer + "/v1/account/oauth/token"
)

var now = time.Unix(1_800_000_000, 0)

func newECKey(t testing.TB, id string) jose.JSONWebKey {
	raw, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.Must(t, err)
	return jose.JSONWebKey{Key: raw, KeyID: id}
}

// set returns the public set of the keys.
func set(t testing.TB, keys ...jose.JSONWebKey) []byte {
	t.Helper()
	var out jose.JSONWebKeySet
	for _, key := range keys {
		out.Keys = append(out.Keys, key.Public())
	}
	text, err := json.Marshal(out)
	testkit.Must(t, err)
	return text
}

func good() map[string]any {
	return map[string]any{
		"iss": clientID,
		"sub": clientID,
		"aud": issuer,
		"exp": now.Add(5 * time.Minute).Unix(),
		"iat": now.Unix(),
		"jti": "one",
	}
}

func with(changes map[string]any) map[string]any {
	out := good()
	maps.Copy(out, changes)
	for name, value := range changes {
		if value == nil {
			delete(out, name)
		}
	}
	return out
}

func sign(
	t testing.TB, key jose.JSONWebKey, algorithm jose.SignatureAlgorithm, claims any, header map[jose.HeaderKey]any,
) string {
	t.Helper()
	payload, err := json.Marshal(claims)
	testkit.Must(t, err)
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: algorithm, Key: key}, &jose.SignerOptions{ExtraHeaders: header},
	)
	testkit.Must(t, err)
	signed, err := signer.Sign(payload)
	testkit.Must(t, err)
	text, err := signed.CompactSerialize()
	testkit.Must(t, err)
	return text
}

func verifyText(text string, keys []byte) error {
	_, err := verify(text, clientID, []string{issuer, endpoint}, keys, now)
	return err
}

func TestVerify_AcceptsEachAlgorithmWithItsKey(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	testkit.Must(t, err)
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	testkit.Must(t, err)
	keys := map[jose.SignatureAlgorithm]jose.JSONWebKey{
		jose.ES256: newECKey(t, "e"),
		jose.RS256: {Key: rsaKey, KeyID: "r"},
		jose.PS256: {Key: rsaKey, KeyID: "r"},
		jose.EdDSA: {Key: edKey, KeyID: "o"},
	}
	public := set(t, keys[jose.ES256], keys[jose.RS256], keys[jose.EdDSA])
	testkit.Must(t, checkKeys(public))
	for algorithm, key := range keys {
		for _, header := range []map[jose.HeaderKey]any{nil, {"typ": "JWT"}, {"typ": "client-authentication+jwt"}} {
			if err := verifyText(sign(t, key, algorithm, good(), header), public); err != nil {
				t.Errorf("%s, %v: %v", algorithm, header, err)
			}
		}
	}
	if len(Algorithms()) != len(keys) {
		t.Error("an algorithm is not tested")
	}
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	testkit.Must(t, err)
	if err := checkKeys(set(t, jose.JSONWebKey{Key: small, KeyID: "s"})); err == nil {
		t.Error("an RSA key of 1,024 bits is accepted")
	}
}

func TestVerify_RefusesInvalidClaims(t *testing.T) {
	t.Parallel()
	key := newECKey(t, "k")
	public := set(t, key)
	for name, claims := range map[string]map[string]any{
		"unchanged":       good(),
		"aud is endpoint": with(map[string]any{"aud": endpoint}),
		"aud list of one": with(map[string]any{"aud": []string{issuer}}),
		"no iat":          with(map[string]any{"iat": nil}),
		"fractions":       with(map[string]any{"exp": float64(now.Unix()) + 60.5}),
		"within skew":     with(map[string]any{"exp": now.Add(-29 * time.Second).Unix()}),
		"iat within skew": with(map[string]any{"iat": now.Add(29 * time.Second).Unix()}),
	} {
		if err := verifyText(sign(t, key, jose.ES256, claims, nil), public); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, changes := range map[string]map[string]any{
		"another issuer":    {"iss": "https://chatgpt.com/oauth/other.json"},
		"another subject":   {"sub": "https://chatgpt.com/oauth/other.json"},
		"no issuer":         {"iss": nil},
		"no subject":        {"sub": nil},
		"no aud":            {"aud": nil},
		"another aud":       {"aud": "https://evil.example"},
		"aud with slash":    {"aud": issuer + "/"},
		"aud and another":   {"aud": []string{issuer, "https://evil.example"}},
		"both of ours":      {"aud": []string{issuer, endpoint}},
		"aud a number":      {"aud": 1},
		"no exp":            {"exp": nil},
		"exp as text":       {"exp": "1900000000"},
		"expired":           {"exp": now.Add(-31 * time.Second).Unix()},
		"exp too far ahead": {"exp": now.Add(11 * time.Minute).Unix()},
		"exp out of range":  {"exp": 1e300},
		"negative exp":      {"exp": -1},
		"iat tomorrow":      {"iat": now.Add(24 * time.Hour).Unix()},
		"nbf ahead":         {"nbf": now.Add(time.Minute).Unix()},
		"no jti":            {"jti": nil},
		"empty jti":         {"jti": ""},
		"jti too long":      {"jti": strings.Repeat("x", 257)},
		"jti a number":      {"jti": 7},
	} {
		err := verifyText(sign(t, key, jose.ES256, with(changes), nil), public)
		if refused, _ := errors.AsType[*client.AssertionError](err); refused == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestVerify_RefusesForgeries(t *testing.T) {
	t.Parallel()
	key, other := newECKey(t, "k"), newECKey(t, "k")
	public := set(t, key)
	text := sign(t, key, jose.ES256, good(), nil)
	parts := strings.Split(text, ".")
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	shared := sign(t, jose.JSONWebKey{Key: public}, jose.HS256, map[string]any{}, nil)
	critical := encode(`{"alg":"ES256","kid":"k","crit":["exp"]}`)
	twice := encode(`{"iss":"` + clientID + `","iss":"` + clientID + `"}`)
	for name, forged := range map[string]string{
		"empty":                  "",
		"no JWT":                 "a.b",
		"four parts":             text + ".x",
		"padded":                 text + "=",
		"white space":            " " + text,
		"line break":             parts[0] + ".\n" + parts[1] + "." + parts[2],
		"truncated":              text[:len(text)-4],
		"none":                   encode(`{"alg":"none"}`) + "." + parts[1] + ".",
		"none, signed":           encode(`{"alg":"none","kid":"k"}`) + "." + parts[1] + "." + parts[2],
		"HMAC of the public key": shared,
		"another key, same kid":  sign(t, other, jose.ES256, good(), nil),
		"its own key":            sign(t, other, jose.ES256, good(), map[jose.HeaderKey]any{"jwk": other.Public()}),
		"other claims":           parts[0] + "." + encode(`{"iss":"`+clientID+`"}`) + "." + parts[2],
		"a member twice":         parts[0] + "." + twice + "." + parts[2],
		"header twice":           encode(`{"alg":"ES256","alg":"ES256","kid":"k"}`) + "." + parts[1] + "." + parts[2],
		"critical":               critical + "." + parts[1] + "." + parts[2],
		"access token":           sign(t, key, jose.ES256, good(), map[jose.HeaderKey]any{"typ": "at+jwt"}),
		"too long": sign(t, key, jose.ES256, with(map[string]any{
			"x": strings.Repeat("x", maxLength),
		}), nil),
		"JSON":        `{"protected":"` + parts[0] + `","payload":"` + parts[1] + `","signature":"` + parts[2] + `"}`,
		"RS256 named": encode(`{"alg":"RS256","kid":"k"}`) + "." + parts[1] + "." + parts[2],
	} {
		if verifyText(forged, public) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := verifyText(sign(t, newECKey(t, "new"), jose.ES256, good(), nil), public); !errors.Is(err, errUnknownKey) {
		t.Errorf("an unknown key: %v", err)
	}
	if err := verifyText(text, public); err != nil {
		t.Errorf("the unaltered assertion: %v", err)
	}
}

func TestVerify_TriesKeysWithoutIdentifier(t *testing.T) {
	t.Parallel()
	first, second := newECKey(t, ""), newECKey(t, "")
	public := set(t, first, second)
	if err := verifyText(sign(t, second, jose.ES256, good(), nil), public); err != nil {
		t.Error(err)
	}
	if err := verifyText(sign(t, newECKey(t, ""), jose.ES256, good(), nil), public); !errors.Is(err, errUnknownKey) {
		t.Error(err)
	}
}

func TestCheckKeys_RefusesUnusableSets(t *testing.T) {
	t.Parallel()
	key := newECKey(t, "k")
	private, err := json.Marshal(map[string]any{"keys": []crypto.PrivateKey{key}})
	testkit.Must(t, err)
	public := strings.TrimSuffix(strings.TrimPrefix(string(set(t, key)), `{"keys":[`), `]}`)
	for name, raw := range map[string]string{
		"empty":         "",
		"no JSON":       "x",
		"no keys":       `{"keys":[]}`,
		"a private key": string(private),
		"private beside public": `{"keys":[` + public + `,` +
			strings.TrimPrefix(string(private), `{"keys":[`),
		"a shared secret":               `{"keys":[` + public + `,{"kty":"oct","k":"c2VjcmV0"}]}`,
		"a private key of another kind": `{"keys":[` + public + `,{"kty":"OKP","crv":"X25519","x":"AA","d":"AA"}]}`,
		"an empty Ed25519 key":          `{"keys":[{"kty":"OKP","crv":"Ed25519","x":""}]}`,
		"a short Ed25519 key":           `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AA"}]}`,
		"a long Ed25519 key": `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"` +
			strings.Repeat("A", 44) + `"}]}`,
		"for encryption":    `{"keys":[` + strings.Replace(public, `{`, `{"use":"enc",`, 1) + `]}`,
		"another curve":     `{"keys":[` + strings.Replace(public, "P-256", "P-384", 1) + `]}`,
		"33 keys":           `{"keys":[` + strings.Repeat(public+",", 32) + public + `]}`,
		"another algorithm": `{"keys":[` + strings.Replace(public, `{`, `{"alg":"ES384",`, 1) + `]}`,
	} {
		if err := checkKeys([]byte(raw)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := checkKeys([]byte(`{"keys":[{"kty":"of tomorrow"},` + public + `]}`)); err != nil {
		t.Errorf("a set with a key of unknown kind: %v", err)
	}
}

func FuzzVerify(f *testing.F) {
	key := newECKey(f, "k")
	public := set(f, key)
	text := sign(f, key, jose.ES256, good(), nil)
	f.Add(text)
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, candidate string) {
		if verifyText(candidate, public) != nil {
			return
		}
		a, b := strings.Split(candidate, "."), strings.Split(text, ".")
		if a[0] != b[0] || a[1] != b[1] {
			t.Error("an unsigned assertion is accepted")
		}
	})
}
