package grant_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

const (
	resource  = "https://api.example.org/v1"
	challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
)

// atResource are the terms of a refresh without a scope.
var atResource = refreshTerms{Resource: resource}

// A testEnv is a Service over real stores, with a workspace of its own in the stores that all tests share. A test that
// breaks a store has one of its own (ownRedis, ownStores).
type testEnv struct {
	*testing.T
	fixture *fixture.Fixture
	store   *postgres.Store
	redis   *localstore.Redis
	log     *testkit.Log // of all services of the test
	rdb     goredis.UniversalClient
	grants  *grant.Service
	codec   *grant.TokenCodec
	user    uuid.UUID
	app     client.Client // a connector
	// snapshotFirst makes requests read a snapshot first, as those of authenticated clients do.
	snapshotFirst bool
}

var sharedRedis = testkit.Once(testkit.NewRedis)

// newTestEnv returns a testEnv and, like ownRedis and ownStores, runs the test beside the others.
func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	t.Parallel()
	return sharedTestEnv(t)
}

// sharedTestEnv returns a testEnv for a test that has several.
func sharedTestEnv(t *testing.T) *testEnv {
	t.Helper()
	return testEnvOver(t, fixture.Shared(t), sharedRedis(t))
}

// ownRedis returns a testEnv with a Redis of its own, which the test may pause, stop or empty.
func ownRedis(t *testing.T) *testEnv {
	t.Helper()
	t.Parallel()
	return testEnvOver(t, fixture.Shared(t), testkit.NewRedis(t))
}

// ownStores returns a testEnv with a Redis and a database of its own, whose schema the test may change.
func ownStores(t *testing.T) *testEnv {
	t.Helper()
	t.Parallel()
	return testEnvOver(t, fixture.New(t), testkit.NewRedis(t))
}

func testEnvOver(t *testing.T, f *fixture.Fixture, server *localstore.Redis) *testEnv {
	t.Helper()
	b := &testEnv{
		T:             t,
		fixture:       f,
		redis:         server,
		log:           &testkit.Log{},
		snapshotFirst: strings.HasPrefix(t.Name(), snapshotFirst+"/"),
	}
	t.Cleanup(b.explain)
	var err error
	b.store, err = openStore(t, b.fixture, testkit.StoreWait)
	testkit.Must(t, err)
	t.Cleanup(b.store.Close)
	url := credential.Fixed(credential.Secret(b.redis.URL))
	b.rdb, err = redis.Connect(url, testkit.SilentStoreWait)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = b.rdb.Close() })
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	b.codec, err = grant.NewTokenCodec(seal.NewKeys(key))
	testkit.Must(t, err)
	b.grants = b.service(b.store)
	b.user = b.fixture.Member(perm.ProgrammesRead)
	b.app = b.fixture.Connector(resource, perm.ProgrammesRead)
	return b
}

// explain says of a failed test what its services logged, and how it is repeated.
func (b *testEnv) explain() {
	if b.Failed() {
		b.Logf("the services logged:\n%sgo test ./authserver/internal/oauth/grant -run '^%s$'", b.log,
			strings.ReplaceAll(b.Name(), "/", "$/^"))
	}
}

func openStore(t *testing.T, f *fixture.Fixture, wait time.Duration) (*postgres.Store, error) {
	t.Helper()
	return postgres.Open(t.Context(), postgres.Only(credential.Secret(f.Database.Authserver)), wait)
}

func (b *testEnv) terms() grant.CodeTerms {
	return grant.CodeTerms{ClientID: b.app.ID, RedirectURI: fixture.Callback, Resource: resource, Challenge: challenge}
}

func (b *testEnv) pending(c client.Client) grant.Grant {
	return grant.Grant{
		ID:          uuid.New(),
		Kind:        c.Kind,
		ClientID:    c.ID,
		UserID:      b.user,
		WorkspaceID: b.fixture.WorkspaceID,
		Permissions: perm.NewSet(perm.ProgrammesRead),
		Resource:    resource,
		Ends:        time.Now().Add(c.Kind.Traits().GrantLife),
	}
}

// consent opens a grant and returns its code.
func (b *testEnv) consent() (grant.Grant, credential.Secret) {
	b.Helper()
	g := b.pending(b.app)
	return g, b.open(g)
}

// open opens a grant, or approves it again, and returns its code.
func (b *testEnv) open(g grant.Grant) credential.Secret {
	b.Helper()
	code, err := b.grants.Open(b.Context(), g, b.terms())
	testkit.Must(b, err)
	return code
}

func (b *testEnv) redeem(code credential.Secret, terms grant.CodeTerms) (grant.Issued, error) {
	return b.redeemWith(code, terms, "")
}

// redeemWith redeems with an Idempotency-Key, or without one if it is "".
func (b *testEnv) redeemWith(
	code credential.Secret,
	terms grant.CodeTerms,
	key credential.Secret,
) (grant.Issued, error) {
	token, err := b.grants.Tokens.Read(grant.Code, code.Reveal())
	if err != nil {
		return grant.Issued{}, err
	}
	request := grant.Request{Token: token, Terms: terms, Sender: sender(key), LoadKey: noKey}
	return b.exchange(request, !b.snapshotFirst && b.app.Kind == client.Connector)
}

// noKey is for requests whose access token is not signed.
func noKey(context.Context, []string) error { return nil }

// exchange exchanges a code or refresh token as the engine does: directly first, if the client may.
func (b *testEnv) exchange(request grant.Request, direct bool) (grant.Issued, error) {
	if direct {
		issued, done, err := b.grants.ExchangeDirectly(context.Background(), request)
		if done || err != nil {
			return issued, err
		}
	}
	snapshot, err := b.grants.Snapshot(context.Background(), request.Terms.ClientID, request.Token.Key(), nil)
	if err != nil {
		return grant.Issued{}, err
	}
	return b.grants.Exchange(context.Background(), snapshot, request)
}

// refreshTerms are what a refresh says about its refresh token.
type refreshTerms struct {
	Resource string
	Scope    perm.Set
}

// refreshOf returns the request of a client with a refresh token.
func refreshOf(token grant.Token, id uuid.UUID, terms refreshTerms, sender grant.Sender) grant.Request {
	of := grant.CodeTerms{ClientID: id, Resource: terms.Resource}
	return grant.Request{Token: token, Terms: of, Scope: terms.Scope, Sender: sender, LoadKey: noKey}
}

// sender returns the sender of requests with this Idempotency-Key.
func sender(key credential.Secret) grant.Sender {
	if key == "" {
		return grant.Sender{}
	}
	return grant.Sender{Proof: grant.ProofByKey(key, nil)}
}

func (b *testEnv) rotate(refresh credential.Secret) (grant.Issued, error) {
	return b.rotateAs(refresh, b.app.ID, resource)
}

// rotateWith rotates with an Idempotency-Key.
func (b *testEnv) rotateWith(refresh, key credential.Secret) (grant.Issued, error) {
	return b.rotateBy(refresh, b.app.ID, atResource, sender(key))
}

func (b *testEnv) rotateAs(refresh credential.Secret, id uuid.UUID, target string) (grant.Issued, error) {
	return b.rotateBy(refresh, id, refreshTerms{Resource: target}, grant.Sender{})
}

func (b *testEnv) rotateBy(
	refresh credential.Secret,
	id uuid.UUID,
	terms refreshTerms,
	sender grant.Sender,
) (grant.Issued, error) {
	token, err := b.grants.Tokens.Read(grant.Refresh, refresh.Reveal())
	if err != nil {
		return grant.Issued{}, err
	}
	return b.exchange(refreshOf(token, id, terms, sender), !b.snapshotFirst)
}

// active consents and redeems the code.
func (b *testEnv) active() (grant.Grant, credential.Secret) {
	b.Helper()
	g, code := b.consent()
	return g, b.mustRedeem(code).Refresh
}

func (b *testEnv) mustRedeem(code credential.Secret) grant.Issued {
	b.Helper()
	issued, err := b.redeem(code, b.terms())
	if err != nil {
		b.Fatalf("the code does not work: %v", err)
	}
	return issued
}

func (b *testEnv) mustRotate(refresh credential.Secret) credential.Secret {
	b.Helper()
	issued, err := b.rotate(refresh)
	if err != nil {
		b.Fatalf("a valid refresh failed: %v", err)
	}
	return issued.Refresh
}

// refused checks that a request was refused.
func (b *testEnv) refused(what string) func(grant.Issued, error) {
	b.Helper()
	return func(_ grant.Issued, err error) {
		b.Helper()
		var refusal *grant.Refusal
		if !errors.As(err, &refusal) && !errors.Is(err, grant.ErrForged) {
			b.Errorf("%s: want a refusal, got %v", what, err)
		}
	}
}

// unavailable checks that a request got no decision.
func (b *testEnv) unavailable(what string) func(grant.Issued, error) {
	b.Helper()
	return func(_ grant.Issued, err error) {
		b.Helper()
		unavailable(b.T, what, err)
	}
}

// state returns what Postgres holds.
func (b *testEnv) state(id uuid.UUID) grant.Grant {
	b.Helper()
	g, err := b.store.Grant(context.Background(), grant.Key{WorkspaceID: b.fixture.WorkspaceID, ID: id})
	testkit.Must(b, err)
	return g
}

func (b *testEnv) wantRevoked(id uuid.UUID, reason grant.Reason) {
	b.Helper()
	if g := b.state(id); g.State != grant.Revoked || g.Reason != reason || g.RevokedAt == nil {
		b.Errorf("grant is %s (%s), want revoked (%s)", g.State, g.Reason, reason)
	}
}

func (b *testEnv) wantActive(id uuid.UUID) {
	b.Helper()
	if g := b.state(id); g.State != grant.Active {
		b.Errorf("grant is %s (%s), want active", g.State, g.Reason)
	}
}

func newForeignCodec(t *testing.T) *grant.TokenCodec {
	t.Helper()
	c, err := grant.NewTokenCodec(seal.NewKeys(make([]byte, 32)))
	testkit.Must(t, err)
	return c
}

func contains(secret credential.Secret, value string) bool {
	text := secret.Reveal()
	for i := 0; i+8 <= len(value); i++ {
		for j := 8; j+8 <= len(text); j++ {
			if value[i:i+8] == text[j:j+8] {
				return true
			}
		}
	}
	return false
}

func race(t *testing.T, racers int, run func() error) {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	winners := 0
	for range racers {
		wg.Go(func() {
			err := run()
			var refusal *grant.Refusal
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				winners++
			} else if !errors.As(err, &refusal) {
				t.Errorf("a losing request got no refusal: %v", err)
			}
		})
	}
	wg.Wait()
	if winners != 1 {
		t.Errorf("%d winners", winners)
	}
}

func unavailable(t *testing.T, what string, err error) {
	t.Helper()
	var refusal *grant.Refusal
	if !errors.Is(err, store.ErrUnavailable) || errors.As(err, &refusal) {
		t.Errorf("%s: %v", what, err)
	}
}

// eventually repeats a call while it is unavailable.
func eventually(t *testing.T, what string, call func() error) {
	t.Helper()
	await.NoError(t, func() error {
		err := call()
		if err != nil {
			unavailable(t, what, err)
		}
		return err
	})
}

// service returns a Service over a store and the test's Redis, which waits for both as long as a busy machine needs.
func (b *testEnv) service(store grant.GrantStore) *grant.Service {
	return b.serviceOf(store, redis.NewGrants(b.rdb))
}

func (b *testEnv) serviceOf(store grant.GrantStore, rotations grant.RotationStore) *grant.Service {
	service := grant.NewService(store, rotations, b.codec, slog.New(slog.NewTextHandler(b.log, nil)))
	service.WaitForStores(testkit.SilentStoreWait)
	service.SetLimit(await.Long) // Postgres waits for longer
	service.SetCommitPause(time.Millisecond)
	return service
}

// anotherProcess returns a Service over the same stores that shares no memory with the first one.
func (b *testEnv) anotherProcess() *testEnv {
	b.Helper()
	rdb, err := redis.Connect(credential.Fixed(credential.Secret(b.redis.URL)), testkit.SilentStoreWait)
	testkit.Must(b, err)
	b.Cleanup(func() { _ = rdb.Close() })
	other := *b
	other.rdb = rdb
	other.grants = other.service(b.store)
	return &other
}
