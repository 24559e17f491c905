package keyring_test

import (
	"crypto/rand"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

const issuer = "https://api.example.org"

// A testEnv is two processes over the database that the tests of this package share. They run one after another: the
// signing keys are those of the whole installation, and each test begins without any.
type testEnv struct {
	*testing.T
	fixture *fixture.Fixture
	store   *postgres.Store
	master  []byte
	first   *keyring.Keyring
	second  *keyring.Keyring
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	b := &testEnv{T: t, fixture: fixture.Shared(t), master: newKey()}
	b.fixture.Exec(`delete from account.signing_keys`)
	var err error
	database := credential.Secret(b.fixture.Database.Authserver)
	b.store, err = postgres.Open(t.Context(), postgres.Only(database), testkit.StoreWait)
	testkit.Must(b, err)
	t.Cleanup(b.store.Close)
	b.first, b.second = b.ring(seal.NewKeys(b.master)), b.ring(seal.NewKeys(b.master))
	testkit.Must(b, b.first.Load(t.Context()))
	testkit.Must(b, b.second.Load(t.Context()))
	return b
}

func newKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	return key
}

func (b *testEnv) ring(keys seal.Keys) *keyring.Keyring {
	b.Helper()
	r, err := keyring.New(b.store, keys)
	testkit.Must(b, err)
	return r
}

// rotate rotates the keys in the first process, and returns the identifier of the key that signs then.
func (b *testEnv) rotate() string {
	b.Helper()
	kid, err := b.first.Rotate(b.Context(), "admin")
	testkit.Must(b, err)
	return kid
}

func (b *testEnv) published(r *keyring.Keyring) string {
	b.Helper()
	keys, err := r.JWKS()
	testkit.Must(b, err)
	return string(keys)
}

// atOnce runs do n times at the same time.
func (b *testEnv) atOnce(n int, do func(i int) error) {
	b.Helper()
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			if err := do(i); err != nil {
				b.Error(err)
			}
		})
	}
	group.Wait()
}

func (b *testEnv) kid(r *keyring.Keyring) string {
	b.Helper()
	key, err := r.Current(b.Context())
	testkit.Must(b, err)
	return key.KeyID()
}

func (b *testEnv) token(r *keyring.Keyring) credential.Secret {
	b.Helper()
	key, err := r.Current(b.Context())
	testkit.Must(b, err)
	token, err := accesstoken.Sign(key, accesstoken.Claims{
		Issuer:      issuer,
		Subject:     uuid.New(),
		Audience:    issuer + "/v1",
		Expires:     time.Now().Add(time.Hour),
		IssuedAt:    time.Now(),
		ID:          uuid.NewString(),
		ClientID:    uuid.NewString(),
		Scope:       perm.NewSet(perm.ProgrammesRead),
		WorkspaceID: uuid.New(),
		GrantID:     uuid.New(),
	})
	testkit.Must(b, err)
	return token
}

func (b *testEnv) verifies(r *keyring.Keyring, token credential.Secret) bool {
	_, err := r.Public().Verify(token.Reveal(), issuer, time.Now())
	return err == nil
}

// gone requires that a key of the process neither signs nor verifies its token, and is not published.
func (b *testEnv) gone(r *keyring.Keyring, kid string, token credential.Secret) {
	b.Helper()
	if b.verifies(r, token) || b.kid(r) == kid || strings.Contains(b.published(r), kid) {
		b.Errorf("the removed key %s still signs, verifies or is published", kid)
	}
}

func (b *testEnv) count(query string, args ...any) int {
	b.Helper()
	var n int
	testkit.Must(b, b.fixture.Owner.QueryRow(b.Context(), query, args...).Scan(&n))
	return n
}

// states checks the number of next, current and retired keys, and that only next and current keys have a private half.
func (b *testEnv) states(what string, next, current, retired int) {
	b.Helper()
	for state, want := range map[string]int{"next": next, "current": current, "retired": retired} {
		if n := b.count(`select count(*) from account.signing_keys where state = $1`, state); n != want {
			b.Errorf("%s: %d keys are %s, want %d", what, n, state, want)
		}
	}
	n := b.count(`select count(*) from account.signing_keys
		where (private_sealed = '') <> (state in ('retired', 'removed'))`)
	if n != 0 {
		b.Errorf("%s: %d keys have a private half in the wrong state, or lack it", what, n)
	}
}

func (b *testEnv) event(action, kid, actor string) {
	b.Helper()
	n := b.count(`select count(*) from account.audit_events
		where action = $1 and subject = 'key:' || $2 and actor = $3`, action, kid, actor)
	if n != 1 {
		b.Errorf("%d events %s of %s", n, action, actor)
	}
}
