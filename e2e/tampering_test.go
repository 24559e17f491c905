package e2e

import (
	"crypto/elliptic"
	"encoding/base64"
	"math/big"
	"slices"
	"testing"
)

// programmes is the list's path (spec 4.1).
const programmes = "/v1/programmes/programmes"

// alterLast changes a character near the end of a token, which belongs to a signature, a MAC or a checksum.
func alterLast(token string) string {
	at := len(token) - 3
	other := "A"
	if token[at] == 'A' {
		other = "B"
	}
	return token[:at] + other + token[at+1:]
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

func sorted(values []string) []string { return slices.Sorted(slices.Values(values)) }
