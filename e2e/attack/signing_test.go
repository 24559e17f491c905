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

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// A signer holds a key that the product trusts: the database owner stored its public half among the retired keys. A
// token that it signs is wrong only in its claims or header, so only the check of those can refuse it.
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
		"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": s.kid, "x": encode(point[1:33]),
		"y": encode(point[33:]),
	}
}

// sign returns a compact JWS (RFC 7515) of the two texts, which need not be valid.
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

// object returns a JSON object with the members in the given order: name, value, name, value. Values are raw JSON, and
// a name may occur twice.
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
	signing sync.Mutex
	trusted *signer
)

// believed returns the stored key after both services have read it.
func trustedSigner(t *testing.T, p *harness.Product) signer {
	t.Helper()
	signing.Lock()
	defer signing.Unlock()
	if trusted != nil {
		return *trusted
	}
	s := newSigner(t, "believed-by-"+rand.Text()[:8])
	public, err := json.Marshal(s.jwk(t))
	if err != nil {
		t.Fatal(err)
	}
	p.Database.Exec(t, `insert into account.signing_keys (kid, public_jwk, private_sealed, state, retired_at)
				values ($1, $2, '\x00', 'retired', now())`, s.kid, public)
	published := func() bool { return strings.Contains(string(p.API().Get(t, "/v1/account/oauth/jwks").Body), s.kid) }
	await.True(t, "the trusted key is published", published)
	trusted = &s
	return s
}
