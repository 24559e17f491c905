package accesstoken

import (
	"errors"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v2/jwk"
)

func TestVerified_SizeIsBounded(t *testing.T) {
	var v verified
	at := time.Unix(0, 0)
	for i := range 3 * generationSize {
		v.add(string(rune(i))+"token", Claims{Expires: at.Add(time.Hour)})
		if i%7 == 0 {
			v.add("in use", Claims{Expires: at.Add(time.Hour)})
		}
	}
	if len(v.recent)+len(v.older) > 2*generationSize {
		t.Errorf("%d tokens cached", len(v.recent)+len(v.older))
	}
	if _, found := v.find("in use", at); !found {
		t.Error("a token in use was evicted")
	}
	if _, found := v.find("in use", at.Add(time.Hour)); found {
		t.Error("an expired token was found")
	}
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
	if len(keys.verified.recent) != 1 {
		t.Errorf("%d tokens cached", len(keys.verified.recent))
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
	if _, err := NewKeys(jwk.NewSet()).Verify(token, issuer, now); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("without the key: %v", err)
	}
}
