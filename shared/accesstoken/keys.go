package accesstoken

import (
	"time"

	"github.com/lestrrat-go/jwx/v2/jwk"
)

// Keys holds the trusted public keys and the tokens that were verified with them. It is immutable and safe
// for concurrent use.
type Keys struct {
	set      jwk.Set
	verified verified
}

// NewKeys makes Keys of a set. The set must not be modified afterwards.
func NewKeys(set jwk.Set) *Keys { return &Keys{set: set} }

// Len returns the number of keys.
func (k *Keys) Len() int { return k.set.Len() }

// Verify is like the function Verify, but checks the signature of each token only once.
func (k *Keys) Verify(text, issuer string, now time.Time) (Claims, error) {
	if claims, found := k.verified.find(text, now); found && claims.Issuer == issuer {
		return claims, nil
	}
	claims, err := Verify(text, k.set, issuer, now)
	if err == nil {
		k.verified.add(text, claims)
	}
	return claims, err
}
