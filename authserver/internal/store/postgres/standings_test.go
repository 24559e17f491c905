package postgres_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// publish stores a published signing key.
func (l *storeTest) publish(kid string) {
	l.Helper()
	l.fixture.Exec(
		`insert into account.signing_keys (kid, public_jwk, private_sealed, state) values ($1, '{}', '', 'next')
			on conflict do nothing`,
		kid,
	)
}

// An access token with a removed key, an unknown key or no key is refused at once. Tokens of other keys and
// personal access tokens stay valid.
func TestStanding_RemovedKeyRefusesItsAccessTokens(t *testing.T) {
	t.Parallel()
	l := ownStoreTest(t)
	g := l.many(1)[0]
	pat := standing.Query{PATHash: credential.Hash(l.fixture.Token(g.UserID, perm.ProgrammesRead).Reveal())}
	l.publish("stolen")
	l.publish("other")
	state := func(q standing.Query) string {
		t.Helper()
		s, err := l.Standing(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return s.State
	}
	for _, published := range []string{"next", "current", "retired"} {
		l.fixture.Exec(`update account.signing_keys set state = $1 where kid = 'stolen'`, published)
		if got := state(granted(g, "stolen", uuid.Nil, "")); got != standing.Active {
			t.Errorf("a %s key: %s", published, got)
		}
	}
	l.fixture.Exec(`update account.signing_keys set state = 'removed' where kid = 'stolen'`)
	for _, kid := range []string{"stolen", "unknown", ""} {
		if got := state(granted(g, kid, uuid.Nil, "")); got != "key_removed" {
			t.Errorf("key %q: %s, want key_removed", kid, got)
		}
	}
	for what, q := range map[string]standing.Query{
		"another key":           granted(g, "other", uuid.Nil, ""),
		"personal access token": pat,
	} {
		if got := state(q); got != standing.Active {
			t.Errorf("%s: %s, want active", what, got)
		}
	}
	l.fixture.Exec(`update account.grants set state = 'revoked', revoked_at = now() where id = $1`, g.ID)
	if got := state(granted(g, "stolen", uuid.Nil, "")); got != "revoked" {
		t.Errorf("a revoked grant under a removed key: %s, want revoked", got)
	}
}
