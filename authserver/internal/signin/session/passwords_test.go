package session

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/credential"
)

func TestPasswords_AtMostTwoChecksAtOnce(t *testing.T) {
	passwords, err := NewPasswords()
	if err != nil {
		t.Fatal(err)
	}
	release, inside := make(chan struct{}), make(chan struct{}, atOnce)
	finished := make(chan error, atOnce)
	for range atOnce {
		go func() {
			finished <- passwords.Slot(context.Background(), Caller{}, func() error {
				inside <- struct{}{}
				<-release
				return nil
			})
		}()
	}
	for range atOnce {
		<-inside
	}
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	ran := false
	if err := passwords.Slot(soon, Caller{}, func() error { ran = true; return nil }); !errors.Is(err, ErrBusy) || ran {
		t.Errorf("a third check: %v, ran: %v", err, ran)
	}
	close(release)
	for range atOnce {
		if err := <-finished; err != nil {
			t.Error(err)
		}
	}
	if err := passwords.Slot(t.Context(), Caller{}, func() error { return nil }); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestPasswords_MatchesOnlyOwnHash(t *testing.T) {
	passwords, err := NewPasswords()
	if err != nil {
		t.Fatal(err)
	}
	hash, err := HashPassword("open sesame")
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]bool{"open sesame": true, "open sesame ": false, "": false} {
		if got, err := passwords.Matches(hash, credential.Secret(given)); got != want || err != nil {
			t.Errorf("%q: %v (%v)", given, got, err)
		}
	}
	if got, err := passwords.Matches("", "the password of nobody"); got || err != nil {
		t.Errorf("an unknown user has a password: %v (%v)", got, err)
	}
	if _, err := passwords.Matches("$2a$10$not-argon2id", "x"); err == nil {
		t.Error("a hash of another kind is not an error")
	}
}
