package attack

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

// A signer is a key that we hold and the product believes: the owner of the database put its public half among the
// retired ones. What it signs is wrong in what it says alone, so nothing but the check of that very thing can refuse
// it.
type signer struct {
	kid string
	key *ecdsa.PrivateKey
}

func newSigner(t *testing.T, kid string) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signer{kid, key}
}

func (s signer) jwk(t *testing.T) map[string]any {
	t.Helper()
	point, err := s.key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	return map[string]any{
		"kty": "EC",
		"crv": "P-256",
		"use": "sig",
		"alg": "ES256",
		"kid": s.kid,
		"x":   encode(point[1:33]),
		"y":   encode(point[33:]),
	}
}

// sign makes a compact JWS (RFC 7515) of two texts, whatever they say.
func (s signer) sign(t *testing.T, header, claims string) string {
	t.Helper()
	signed := encode(header) + "." + encode(claims)
	digest := sha256.Sum256([]byte(signed))
	r, v, err := ecdsa.Sign(rand.Reader, s.key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := append(r.FillBytes(make([]byte, 32)), v.FillBytes(make([]byte, 32))...)
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// object is JSON whose members are in the order given, each as it is: name, value, name, value. A name may stand twice.
func object(members ...string) string {
	var out strings.Builder
	for i := 0; i < len(members); i += 2 {
		if i > 0 {
			out.WriteString(",")
		}
		name, _ := json.Marshal(members[i])
		out.WriteString(string(name) + ":" + members[i+1])
	}
	return "{" + out.String() + "}"
}

var (
	planting sync.Mutex
	planted  *signer
)

// believed returns the planted key, once both services know it.
func believed(t *testing.T, p *harness.Product) signer {
	t.Helper()
	planting.Lock()
	defer planting.Unlock()
	if planted != nil {
		return *planted
	}
	s := newSigner(t, "believed-by-"+rand.Text()[:8])
	public, err := json.Marshal(s.jwk(t))
	if err != nil {
		t.Fatal(err)
	}
	p.World.Exec(
		t,
		`insert into account.signing_keys (kid, public_jwk, private_sealed, state, retired_at) values ($1, $2, '\x00', 'retired', now())`,
		s.kid,
		public,
	)
	for began := time.Now(); !strings.Contains(string(p.API().Get(t, "/v1/account/oauth/jwks").Body), s.kid); time.Sleep(200 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatal("the planted key is not published")
		}
	}
	planted = &s
	return s
}
