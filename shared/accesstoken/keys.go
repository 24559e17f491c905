package accesstoken

import (
	"crypto/sha256"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/lestrrat-go/jwx/v2/jwk"
)

// Keys holds the trusted public keys and the tokens that were verified with them. It is safe for concurrent use.
type Keys struct {
	set jwk.Set
	// verified caches the claims of tokens with a valid signature, because checking an ES256 signature costs more than
	// the rest of a request. Permissions are not cached: each request reads them from Postgres. The cache belongs to
	// one set of keys, so that removing a key also removes its tokens.
	verified *lru.Cache[[sha256.Size]byte, Claims]
}

// maxVerified is the maximum number of remembered tokens.
const maxVerified = 8192

// NewKeys makes Keys of a set. The set must not be modified afterwards.
func NewKeys(set jwk.Set) *Keys {
	verified, _ := lru.New[[sha256.Size]byte, Claims](maxVerified) // fails only if the size is not positive
	return &Keys{set: set, verified: verified}
}

// Len returns the number of keys.
func (k *Keys) Len() int { return k.set.Len() }

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
