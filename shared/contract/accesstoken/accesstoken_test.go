package accesstoken

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must = testkit.Must

const issuer = "https://api.example.org"

var now = time.Unix(1_800_000_000, 0)

// signed signs claims with a stored key.
func signed(t testing.TB, key jose.JSONWebKey, c Claims) string {
	t.Helper()
	signing, err := NewSigningKey(key)
	must(t, err)
	token, err := Sign(signing, c)
	must(t, err)
	return token.Reveal()
}

func newKey(t testing.TB, kid string) (private jose.JSONWebKey, public jose.JSONWebKeySet) {
	t.Helper()
	raw, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	private = jose.JSONWebKey{Key: raw, KeyID: kid}
	return private, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{private.Public()}}
}

func claims() Claims {
	return Claims{
		Issuer:      issuer,
		Subject:     uuid.New(),
		Audience:    issuer + "/v1",
		Expires:     now.Add(time.Hour),
		IssuedAt:    now,
		ID:          "id",
		ClientID:    uuid.NewString(),
		Scope:       perm.NewSet(perm.ProgrammesRead),
		WorkspaceID: uuid.New(),
		GrantID:     uuid.New(),
	}
}

func TestVerify_AcceptsSignedToken(t *testing.T) {
	key, public := newKey(t, "k1")
	want := claims()
	got, err := Verify(signed(t, key, want), public, issuer, now)
	must(t, err)
	if got.Scope.Scope() != want.Scope.Scope() || got.GrantID != want.GrantID || got.Subject != want.Subject ||
		got.Audience != want.Audience || !got.Expires.Equal(want.Expires) {
		t.Errorf("got %+v", got)
	}
}

func TestVerify_ChecksTimeAndIssuer(t *testing.T) {
	key, public := newKey(t, "k1")
	token := signed(t, key, claims())
	if _, err := Verify(token, public, issuer, now.Add(time.Hour+leeway)); !errors.Is(err, ErrExpired) {
		t.Errorf("expired: %v", err)
	}
	if _, err := Verify(token, public, issuer, now.Add(-time.Minute)); err == nil {
		t.Error("token issued in the future was accepted")
	}
	if _, err := Verify(token, public, issuer+"/", now); err == nil {
		t.Error("token of another issuer was accepted")
	}
}

func TestVerify_ReportsUnknownKey(t *testing.T) {
	key, _ := newKey(t, "k1")
	_, others := newKey(t, "k2")
	token := signed(t, key, claims())
	if _, err := Verify(token, others, issuer, now); !errors.Is(err, ErrUnknownKey) {
		t.Error(err)
	}
	_, impostors := newKey(t, "k1")
	if _, err := Verify(token, impostors, issuer, now); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// forge signs a payload with arbitrary headers, as an insider with the key could.
func forge(
	t *testing.T, key jose.JSONWebKey, typ jose.ContentType, extra map[jose.HeaderKey]any, change func(map[string]any),
) string {
	t.Helper()
	c := claims()
	payload := map[string]any{
		"iss":       c.Issuer,
		"sub":       c.Subject.String(),
		"aud":       c.Audience,
		"exp":       c.Expires.Unix(),
		"iat":       c.IssuedAt.Unix(),
		"jti":       "id",
		"client_id": c.ClientID,
		"scope":     c.Scope.Scope(),
		"tenant_id": c.WorkspaceID.String(),
		"grant_id":  c.GrantID.String(),
	}
	if change != nil {
		change(payload)
	}
	raw, _ := json.Marshal(payload)
	return signAs(t, Algorithm, key, (&jose.SignerOptions{ExtraHeaders: extra}).WithType(typ), raw)
}

func signAs(
	t *testing.T, algorithm jose.SignatureAlgorithm, key jose.JSONWebKey, o *jose.SignerOptions, payload []byte,
) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, o)
	must(t, err)
	signed, err := signer.Sign(payload)
	must(t, err)
	text, err := signed.CompactSerialize()
	must(t, err)
	return text
}

func TestVerify_RefusesForgeriesAndOtherEncodings(t *testing.T) {
	key, public := newKey(t, "k1")
	good := forge(t, key, Type, nil, nil)
	if _, err := Verify(good, public, issuer, now); err != nil {
		t.Fatalf("unaltered token refused: %v", err)
	}
	parts := strings.Split(good, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"at+jwt","kid":"k1"}`))
	publicBytes, _ := json.Marshal(public.Keys[0])
	payload, _ := base64.RawURLEncoding.DecodeString(parts[1])
	confused := signAs(t, jose.HS256, jose.JSONWebKey{Key: publicBytes, KeyID: "k1"},
		(&jose.SignerOptions{}).WithType(Type), payload)
	doubled := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(payload), `{`, `{"aud":"x",`, 1)))
	for name, token := range map[string]string{
		"empty":                "",
		"alg none":             none + "." + parts[1] + ".",
		"alg none, signature":  none + "." + parts[1] + "." + parts[2],
		"HMAC with public key": confused,
		"other payload":        parts[0] + "." + doubled + "." + parts[2],
		"typ JWT":              forge(t, key, "JWT", nil, nil),
		"critical header":      forge(t, key, Type, map[jose.HeaderKey]any{"crit": []string{"exp"}}, nil),
		"no exp":               forge(t, key, Type, nil, func(p map[string]any) { delete(p, "exp") }),
		"exp as text":          forge(t, key, Type, nil, func(p map[string]any) { p["exp"] = "1900000000" }),
		"no iat":               forge(t, key, Type, nil, func(p map[string]any) { delete(p, "iat") }),
		"aud in two cases":     forge(t, key, Type, nil, func(p map[string]any) { p["AUD"] = p["aud"] }),
		"no aud":               forge(t, key, Type, nil, func(p map[string]any) { delete(p, "aud") }),
		"two aud": forge(t, key, Type, nil, func(p map[string]any) {
			p["aud"] = []string{issuer + "/v1", issuer + "/mcp"}
		}),
		"no grant":    forge(t, key, Type, nil, func(p map[string]any) { delete(p, "grant_id") }),
		"padding":     good + "=",
		"white space": " " + good,
		"line break":  parts[0] + "." + parts[1] + ".\n" + parts[2],
		"four parts":  good + ".x",
		"JSON serialisation": `{"protected":"` + parts[0] + `","payload":"` + parts[1] +
			`","signature":"` + parts[2] + `"}`,
		"cut":       good[:len(good)-4],
		"very long": good + strings.Repeat("A", maxLength),
	} {
		if _, err := Verify(token, public, issuer, now); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzVerify(f *testing.F) {
	key, public := newKey(f, "k1")
	token := signed(f, key, claims())
	f.Add(token)
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := Verify(text, public, issuer, now); err == nil && text != token {
			parts, original := strings.Split(text, "."), strings.Split(token, ".")
			if parts[0] != original[0] || parts[1] != original[1] {
				t.Error("a token that was never signed was accepted")
			}
		}
	})
}

// Only the validity of the signature is cached: the issuer, the expiry and the keys are checked each time.
func TestKeysVerify_RechecksCachedToken(t *testing.T) {
	key, public := newKey(t, "k1")
	keys := NewKeys(public)
	token := signed(t, key, claims())
	for range 3 {
		if _, err := keys.Verify(token, issuer, now); err != nil {
			t.Fatal(err)
		}
	}
	if keys.verified.Len() != 1 {
		t.Errorf("%d tokens cached", keys.verified.Len())
	}
	if _, err := keys.Verify(token, issuer+"/", now); err == nil {
		t.Error("accepted for another issuer")
	}
	if _, err := keys.Verify(token, issuer, now.Add(time.Hour+leeway)); !errors.Is(err, ErrExpired) {
		t.Errorf("expired: %v", err)
	}
	if _, err := keys.Verify(token[:len(token)-4]+"AAAA", issuer, now); err == nil {
		t.Error("accepted with another signature")
	}
	if _, err := NewKeys(jose.JSONWebKeySet{}).Verify(token, issuer, now); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("without the key: %v", err)
	}
}

func TestClientID_IsStable(t *testing.T) {
	const registered = "0190c5d2-7f3a-7c11-9d0e-1a2b3c4d5e6f"
	const address = "https://claude.ai/oauth/mcp-oauth-client-metadata"
	if id, err := ClientID(registered); err != nil || id.String() != registered {
		t.Error(id, err)
	}
	// Stored identifiers must not change: this is the identifier of that address forever.
	id, err := ClientID(address)
	if err != nil || id.String() != "db510698-bee8-88d6-9dc0-60a8f65925f5" {
		t.Error(id, err)
	}
	if other, _ := ClientID(address + "/"); other == id || id.Version() != 8 {
		t.Error("two addresses have the same identifier")
	}
	for _, neither := range []string{
		"", "claude", "http://claude.ai/oauth", "HTTPS://claude.ai/x", registered + " ", " " + address,
	} {
		if _, err := ClientID(neither); err == nil {
			t.Errorf("%q is accepted", neither)
		}
	}
}

func TestRegisteredClientID_AcceptsOnlyLowerCase(t *testing.T) {
	const canonical = "0190c5d2-7f3a-7c11-9d0e-1a2b3c4d5e6f"
	if _, err := RegisteredClientID(canonical); err != nil {
		t.Error(err)
	}
	if _, err := RegisteredClientID("0190C5D2-7f3a-7c11-9d0e-1a2b3c4d5e6f"); err == nil {
		t.Error("upper case accepted")
	}
}
