package clientassertion

import (
	"crypto/rsa"
	"errors"

	"github.com/lestrrat-go/jwx/v2/jwa"
	"github.com/lestrrat-go/jwx/v2/jwk"
)

// Algorithms returns the algorithms with which a client may sign.
func Algorithms() []string { return []string{"ES256", "RS256", "PS256", "EdDSA"} }

const (
	maxSet     = 32
	minRSABits = 2048
	maxRSABits = 8192
)

// CheckKeys returns why a JWK set cannot authenticate a client, or nil. The set may contain keys of kinds that are not
// used here, but no private or symmetric key.
func CheckKeys(raw []byte) error {
	set, err := jwk.Parse(raw, jwk.WithIgnoreParseError(true))
	if err != nil || set.Len() > maxSet {
		return errors.New("they must be a JWK set of at most 32 keys")
	}
	usable := false
	for i := range set.Len() {
		key, _ := set.Key(i)
		switch key.(type) {
		case jwk.RSAPrivateKey, jwk.ECDSAPrivateKey, jwk.OKPPrivateKey, jwk.SymmetricKey:
			return errors.New("the set contains a private key, which anyone can read")
		}
		for _, algorithm := range Algorithms() {
			usable = usable || fits(key, jwa.SignatureAlgorithm(algorithm))
		}
	}
	if !usable {
		return errors.New("the set has no signing key for ES256, RS256, PS256 or EdDSA")
	}
	return nil
}

// fits reports whether the key is made for the algorithm.
func fits(key jwk.Key, algorithm jwa.SignatureAlgorithm) bool {
	if use := key.KeyUsage(); use != "" && use != string(jwk.ForSignature) {
		return false
	}
	if named := key.Algorithm(); named != nil && named.String() != "" && named.String() != algorithm.String() {
		return false
	}
	switch key := key.(type) {
	case jwk.ECDSAPublicKey:
		return algorithm == jwa.ES256 && key.Crv() == jwa.P256
	case jwk.OKPPublicKey:
		return algorithm == jwa.EdDSA && key.Crv() == jwa.Ed25519
	case jwk.RSAPublicKey:
		var public rsa.PublicKey
		if key.Raw(&public) != nil {
			return false
		}
		bits := public.N.BitLen()
		return (algorithm == jwa.RS256 || algorithm == jwa.PS256) && bits >= minRSABits && bits <= maxRSABits
	}
	return false
}

// candidates returns the keys that may have made a signature: those with the identifier if id is not "".
func candidates(raw []byte, id string, algorithm jwa.SignatureAlgorithm) []jwk.Key {
	set, err := jwk.Parse(raw, jwk.WithIgnoreParseError(true))
	if err != nil {
		return nil
	}
	var out []jwk.Key
	for i := range set.Len() {
		if key, _ := set.Key(i); fits(key, algorithm) && (id == "" || key.KeyID() == id) {
			out = append(out, key)
		}
	}
	return out
}
