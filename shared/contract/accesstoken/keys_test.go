package accesstoken

import (
	"errors"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

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
