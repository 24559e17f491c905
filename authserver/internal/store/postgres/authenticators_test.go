package postgres_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
)

// withKeys makes the store seal the secrets of authenticator apps with these master keys.
func (l *storeTest) withKeys(keys ...[]byte) {
	l.Helper()
	box, err := authenticator.NewBox(seal.NewKeys(keys...))
	if err != nil {
		l.Fatal(err)
	}
	l.UseAuthenticators(box)
}

// withApp sets an app up for the user, whose earlier codes are not used.
func (l *storeTest) withApp(signIn uuid.UUID) (authenticator.Secret, []credential.Secret) {
	l.Helper()
	secret, err := authenticator.NewSecret(rand.Reader)
	if err != nil {
		l.Fatal(err)
	}
	codes, hashes, err := authenticator.NewRecoveryCodes(rand.Reader)
	if err == nil {
		err = l.AddAuthenticator(l.Context(), l.grant.UserID, secret, 1, hashes, l.ownEvent(signIn))
	}
	if err != nil {
		l.Fatal(err)
	}
	return secret, codes
}

func (l *storeTest) ownEvent(signIn uuid.UUID) audit.Event {
	return audit.Event{
		UserID:        &l.grant.UserID,
		Actor:         "user:x",
		Action:        audit.AuthenticatorAdded,
		Subject:       "user:x",
		Authorization: &audit.Authorization{UserID: l.grant.UserID, SignInID: signIn},
	}
}

func TestAuthenticator_SecretsAreSealedAndResealed(t *testing.T) {
	t.Parallel()
	l := ownStoreTest(t)
	older, newer := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	l.withKeys(older)
	proofs := l.proving()
	proof := proofs["password"]
	signIn, err := l.begin(proofs["passkey"]) // the user has a second factor
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := l.withApp(signIn)
	var stored []byte
	read := l.fixture.Owner.QueryRow(t.Context(), `select secret from account.authenticators`)
	if err := read.Scan(&stored); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(stored, secret) {
		t.Error("the secret is stored in the clear")
	}
	l.withKeys(newer, older)
	if n, err := l.ResealAuthenticators(t.Context()); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	l.withKeys(newer)
	code, err := secret.Code(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	proof.Code = credential.Secret(code)
	if _, err := l.begin(proof); err != nil {
		t.Errorf("after the older key was removed: %v", err)
	}
}

func TestAuthenticator_CodeIsGoodOnceAtSameTime(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	l.withKeys(bytes.Repeat([]byte{1}, 32))
	proofs := l.proving()
	proof := proofs["password"]
	signIn, err := l.begin(proofs["passkey"]) // the user has a second factor
	if err != nil {
		t.Fatal(err)
	}
	secret, recovery := l.withApp(signIn)
	if _, err := l.begin(proof); !errors.Is(err, session.ErrCodeNeeded) {
		t.Errorf("without a code: %v", err)
	}
	if err := l.prove(signIn, proof); !errors.Is(err, session.ErrCodeNeeded) {
		t.Errorf("reauthentication without a code: %v", err)
	}
	code, err := secret.Code(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for what, code := range map[string]credential.Secret{
		"a code":          credential.Secret(code),
		"a recovery code": recovery[0],
	} {
		proof.Code = code
		var group sync.WaitGroup
		results := make(chan error, 4)
		for range cap(results) {
			group.Go(func() { _, err := l.begin(proof); results <- err })
		}
		group.Wait()
		close(results)
		good := 0
		for err := range results {
			switch {
			case err == nil:
				good++
			case !errors.Is(err, session.ErrCodeInvalid):
				t.Errorf("%s: %v", what, err)
			}
		}
		if good != 1 {
			t.Errorf("%s is good %d times", what, good)
		}
	}
	status, err := l.Authenticator(t.Context(), l.grant.UserID)
	if err != nil || !status.Active || status.RecoveryCodes != authenticator.RecoveryCodes-1 {
		t.Errorf("%+v, %v", status, err)
	}
	again := l.AddAuthenticator(t.Context(), l.grant.UserID, secret, 1, nil, l.ownEvent(signIn))
	if !errors.Is(again, authenticator.ErrExists) {
		t.Errorf("a second app: %v", again)
	}
	if removed, err := l.RemoveAuthenticator(t.Context(), l.grant.UserID, l.ownEvent(signIn)); !removed || err != nil {
		t.Errorf("%t, %v", removed, err)
	}
	proof.Code = ""
	if _, err := l.begin(proof); err != nil {
		t.Errorf("after the removal: %v", err)
	}
}
