package client

import (
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

const wrongSecret = credential.Secret("alm_cs_0000000000000000000000000000000000000000000000000")

func withTwoSecrets() Client {
	return Client{
		Secrets: [][]byte{credential.Hash("one"), credential.Hash("another, while the first one still works")},
	}
}

// A secret is 256 random bits, so it needs no slow hash (contract, section 2).
func TestSecretMatches_WrongSecretCostsMicroseconds(t *testing.T) {
	c := withTwoSecrets()
	testkit.Quick(t, 100*time.Microsecond, func() {
		if c.SecretMatches(wrongSecret) {
			t.Fatal("a wrong secret matches")
		}
	})
}

func BenchmarkWrongSecret(b *testing.B) {
	c := withTwoSecrets()
	for b.Loop() {
		_ = c.SecretMatches(wrongSecret)
	}
}
