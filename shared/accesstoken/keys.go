package accesstoken

import (
	"time"

	"github.com/lestrrat-go/jwx/v2/jwk"
)

// Keys are the public keys that are believed, with the tokens that these very keys have verified. They are safe for
// concurrent use, and never change: other keys are other Keys.
type Keys struct {
	set      jwk.Set
	verified verified
}

// NewKeys makes Keys of a set that nobody changes any more.
func NewKeys(set jwk.Set) *Keys { return &Keys{set: set} }

// Len is how many keys there are.
func (k *Keys) Len() int { return k.set.Len() }

// Verify is the function Verify, which checks a signature; here that is done once for each token.
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
