package session_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must = testkit.Must

type state struct{ Nonce, Verifier string }

// Neither the state nor what it leads to is in Postgres in the clear. A state of the former release is still finished.
func TestLogins_AreStoredSealed(t *testing.T) {
	t.Parallel()
	f := fixture.Shared(t)
	database := credential.Secret(f.Database.Authserver)
	store, err := postgres.Open(t.Context(), postgres.Only(database), testkit.StoreWait)
	must(t, err)
	t.Cleanup(store.Close)
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	sessions, err := session.New(session.Deps{Store: store, Keys: seal.NewKeys(key), Secure: true})
	must(t, err)
	by := session.BindToSignIn(uuid.New())
	secret, begun := rand.Text(), state{rand.Text(), rand.Text()}
	must(t, sessions.BeginLogin(t.Context(), session.OIDCSignIn, by, secret, time.Minute, begun))
	for _, text := range []string{secret, begun.Nonce, begun.Verifier} {
		var found int
		if err := f.Owner.QueryRow(t.Context(), `select count(*) from account.ceremonies c
			where position(convert_to($1, 'UTF8') in data) > 0 or position($1 in c::text) > 0`, text).
			Scan(&found); err != nil || found != 0 {
			t.Errorf("found in %d rows, %v", found, err)
		}
	}
	former, content := rand.Text(), state{"nonce", "verifier"}
	plain, _ := json.Marshal(content) // always encodes
	hash := sha256.Sum256([]byte(former))
	f.Exec(`insert into account.ceremonies (secret_hash, binding_hash, purpose, data, expires_at)
		select $1, binding_hash, purpose, $2, expires_at from account.ceremonies`, hash[:], plain)
	for text, want := range map[string]state{secret: begun, former: content} {
		var got state
		found, err := sessions.TakeLogin(t.Context(), session.OIDCSignIn, by, text, &got)
		if err != nil || !found || got != want {
			t.Errorf("found %t, the same %t, %v", found, got == want, err)
		}
	}
}
