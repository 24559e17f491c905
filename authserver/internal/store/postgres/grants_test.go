package postgres_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must, connect = testkit.Must, testkit.Connect

// The conditional updates are tested without Redis, which would hide their faults.

type storeTest struct {
	*testing.T
	*postgres.Store
	fixture *fixture.Fixture
	grant   grant.Grant
}

// newStoreTest runs the test in parallel with others, and returns a workspace in the database that they share.
func newStoreTest(t *testing.T) *storeTest {
	t.Helper()
	t.Parallel()
	return storeTestIn(t, fixture.Shared(t))
}

// ownStoreTest is newStoreTest with a database of its own, for tests that change the schema or look at all workspaces.
func ownStoreTest(t *testing.T) *storeTest {
	t.Helper()
	t.Parallel()
	return storeTestIn(t, fixture.New(t))
}

// pending approves l.grant, whose code is not used yet.
func (l *storeTest) pending() *storeTest {
	l.Helper()
	wants(l, grant.Pending)(l.approve(l.Context(), l.grant))
	return l
}

func storeTestIn(t *testing.T, f *fixture.Fixture) *storeTest {
	t.Helper()
	l := &storeTest{T: t, fixture: f}
	l.Store = l.open(testkit.StoreWait)
	app := l.fixture.Connector("https://api.example.org/v1", perm.ProgrammesRead)
	l.grant = grant.Grant{
		ID:          uuid.New(),
		Kind:        app.Kind,
		ClientID:    app.ID,
		UserID:      l.fixture.Member(perm.ProgrammesRead),
		WorkspaceID: l.fixture.WorkspaceID,
		Permissions: perm.NewSet(perm.ProgrammesRead),
		Resource:    app.Resource,
		CodeBinding: bytes.Repeat([]byte{1}, 32),
		Ends:        time.Now().Add(time.Hour),
	}
	return l
}

// open opens a store whose statements wait so long for Postgres.
func (l *storeTest) open(wait time.Duration) *postgres.Store {
	l.Helper()
	url := credential.Secret(l.fixture.Database.Authserver)
	store, err := postgres.Open(l.Context(), postgres.Only(url), wait)
	must(l, err)
	l.Cleanup(store.Close)
	return store
}

// hasty returns l with a store that waits no longer than a store without settings, for what the test keeps from it.
func (l *storeTest) hasty() *storeTest {
	l.Helper()
	hasty := *l
	hasty.Store = l.open(0)
	return &hasty
}

// awaitBlocked waits until so many sessions wait for a lock of tx.
func (l *storeTest) awaitBlocked(tx pgx.Tx, sessions int) {
	l.Helper()
	const blocked = `select count(*) from pg_stat_activity where $1 = any (pg_blocking_pids(pid))`
	await.True(l, "sessions wait for the transaction", func() bool {
		return l.count(blocked, tx.Conn().PgConn().PID()) >= sessions
	})
}

// key returns the key of a grant of the fixture's workspace.
func (l *storeTest) key(id uuid.UUID) grant.Key {
	return grant.Key{WorkspaceID: l.fixture.WorkspaceID, ID: id}
}

// wantErr checks how what was tried ended: with the error want, or well if want is nil.
func wantErr(t testing.TB, what string, want, got error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got the error %v, want %v", what, got, want)
	}
}

// errOf returns the error of a call whose result the test does not need.
func errOf(_ any, err error) error { return err }

func hash(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

// Snapshot reads a snapshot without a secret.
func (l *storeTest) Snapshot(ctx context.Context, clientID uuid.UUID, key grant.Key) (grant.Snapshot, error) {
	return l.Store.Snapshot(ctx, clientID, key, nil)
}

// Activate takes the step of a code with this binding.
func (l *storeTest) Activate(ctx context.Context, step grant.Step, binding []byte) (grant.UpdateResult, error) {
	step.Binding = binding
	return l.Advance(ctx, step)
}

// activate and advance take a step whose nonce is derived from its hash: the same step has the same nonce.
// activate redeems the code of l.grant.
func (l *storeTest) activate(ctx context.Context, id uuid.UUID, b byte) (grant.UpdateResult, error) {
	step := l.step(nonce(hash(b)), 1, hash(b))
	step.GrantID = id
	return l.Activate(ctx, step, hash(1))
}

func (l *storeTest) advance(
	ctx context.Context, id uuid.UUID, generation uint32, hash []byte,
) (grant.UpdateResult, error) {
	step := l.step(nonce(hash), generation, hash)
	step.GrantID = id
	return l.Advance(ctx, step)
}

// step returns a step of l.grant to a generation whose token has this hash.
func (l *storeTest) step(nonce string, generation uint32, token []byte) grant.Step {
	return grant.Step{
		WorkspaceID: l.fixture.WorkspaceID,
		GrantID:     l.grant.ID,
		Nonce:       nonce,
		Generation:  generation,
		Hash:        token,
	}
}

// fresh is step with a new nonce, of a request that begins now.
func (l *storeTest) fresh(generation uint32, token []byte) grant.Step {
	step := l.step(uuid.NewString(), generation, token)
	step.Began = time.Now()
	return step
}

// count returns the number that a query yields, as the owner of the database.
func (l *storeTest) count(query string, args ...any) int {
	l.Helper()
	var n int
	if err := l.fixture.Owner.QueryRow(l.Context(), query, args...).Scan(&n); err != nil {
		l.Fatalf("%s: %v", query, err)
	}
	return n
}

// wantCount checks the number that a query yields. what says what it counts.
func (l *storeTest) wantCount(want int, what, query string, args ...any) {
	l.Helper()
	if got := l.count(query, args...); got != want {
		l.Errorf("got %d %s, want %d: %s %v", got, what, want, query, args)
	}
}

// read returns the text that a query yields.
func (l *storeTest) read(query string, args ...any) string {
	l.Helper()
	all := l.texts(query, args...)
	if len(all) != 1 {
		l.Fatalf("%d rows: %s", len(all), query)
	}
	return all[0]
}

// texts returns the rows of a query that yields one text each.
func (l *storeTest) texts(query string, args ...any) []string {
	l.Helper()
	rows, err := l.fixture.Owner.Query(l.Context(), query, args...)
	must(l, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(l, err)
	return all
}

func nonce(hash []byte) string { return hex.EncodeToString(hash[:4]) }

// approve opens a grant as its next approval.
func (l *storeTest) approve(ctx context.Context, g grant.Grant) (grant.State, error) {
	approval, err := l.Approve(ctx, g.Key())
	if err != nil {
		return "", err
	}
	return l.Open(ctx, g, approval.Number)
}

// wants checks the result of a call: wants(t, grant.Updated)(l.Advance(…)).
func wants[T comparable](t testing.TB, want T) func(T, error) {
	return func(got T, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("got %v %v, want %v", got, err, want)
		}
	}
}

func TestOpen_RepeatedApprovalUpdatesOneGrant(t *testing.T) {
	l := newStoreTest(t).pending()
	second := l.grant
	second.CodeBinding = hash(2)
	second.Permissions = perm.NewSet(perm.ProgrammesRead, perm.ProgrammesWrite)
	second.Ends = second.Ends.Add(-time.Minute).Truncate(time.Second)
	wants(l, grant.Pending)(l.approve(t.Context(), second))
	stored, err := l.Grant(t.Context(), l.grant.Key()) // every field comes from the last approval
	if err != nil || !bytes.Equal(stored.CodeBinding, hash(2)) || len(stored.Permissions) != 2 ||
		!stored.Ends.Equal(second.Ends) {
		t.Errorf("%+v %v", stored, err)
	}
	wants(l, grant.Refused)(l.activate(t.Context(), l.grant.ID, 11)) // the code of the previous approval
	wants(l, grant.Updated)(l.Activate(t.Context(), l.step("n", 1, hash(11)), hash(2)))
	wantErr(t, "approve a grant in use", grant.ErrAlreadyUsed, errOf(l.approve(t.Context(), second)))
	l.events(audit.GrantConsented, 2)
}

func TestOpen_EarlierApprovalDoesNotOverwriteLater(t *testing.T) {
	l := newStoreTest(t)
	early, err := l.Approve(t.Context(), l.grant.Key())
	if err != nil || early.State != grant.Pending {
		t.Fatalf("%+v %v", early, err)
	}
	wants(l, grant.Pending)(l.approve(t.Context(), l.grant))
	wider := l.grant
	wider.CodeBinding, wider.Permissions = hash(2), perm.NewSet(perm.ProgrammesRead, perm.ProgrammesWrite)
	wants(l, grant.Pending)(l.Open(t.Context(), wider, early.Number))
	stored, err := l.Grant(t.Context(), l.grant.Key())
	if err != nil || !bytes.Equal(stored.CodeBinding, hash(1)) || len(stored.Permissions) != 1 {
		t.Errorf("%+v %v", stored, err)
	}
}

func TestAdvance_EachGenerationIsAcceptedOnce(t *testing.T) {
	l := newStoreTest(t)
	ctx, id := t.Context(), l.grant.ID
	wants(l, grant.Refused)(l.activate(ctx, uuid.New(), 11))
	wants(l, grant.Pending)(l.approve(ctx, l.grant))
	wants(l, grant.Refused)(l.advance(ctx, id, 2, hash(12)))
	wants(l, grant.Updated)(l.activate(ctx, id, 11))
	wants(l, grant.Updated)(l.activate(ctx, id, 11)) // G8: our own retry
	wants(l, grant.Refused)(l.activate(ctx, id, 99)) // G1: Redis lost the grant
	wants(l, grant.Updated)(l.advance(ctx, id, 2, hash(12)))
	wants(l, grant.Updated)(l.advance(ctx, id, 2, hash(12)))
	wants(l, grant.Refused)(l.advance(ctx, id, 2, hash(99))) // G2
	wants(l, grant.Refused)(l.activate(ctx, id, 11))
	wants(l, grant.Updated)(l.advance(ctx, id, 5, hash(15)))
	wants(l, grant.Refused)(l.advance(ctx, id, 4, hash(14)))
	stored, err := l.Grant(ctx, l.key(id))
	if err != nil || stored.Generation != 5 || !bytes.Equal(stored.RefreshHash, hash(15)) || stored.LastUsed == nil {
		t.Errorf("%+v %v", stored, err)
	}
}

func TestG7_RevokedGrantIsFinalAndKeepsFirstReason(t *testing.T) {
	l := newStoreTest(t).pending()
	ctx, id := t.Context(), l.grant.ID
	wants(l, grant.Updated)(l.activate(ctx, id, 11))
	for _, reason := range []grant.Reason{grant.Replayed, grant.ByUser} {
		must(t, l.Revoke(ctx, l.key(id), reason, "client:x", nil))
	}
	wants(l, grant.Overtaken)(l.advance(ctx, id, 2, hash(12))) // revoked while this step was under way
	wants(l, grant.Overtaken)(l.advance(ctx, id, 2, hash(12))) // the same step, tried again
	wants(l, grant.Refused)(l.advance(ctx, id, 2, hash(13)))   // a second success of the generation
	wants(l, grant.Overtaken)(l.advance(ctx, id, 5, hash(15))) // Postgres has lost the steps before
	wants(l, grant.Refused)(l.advance(ctx, id, 4, hash(14)))
	wants(l, grant.Refused)(l.activate(ctx, id, 11))
	wantErr(t, "approve a revoked grant", grant.ErrAlreadyUsed, errOf(l.approve(ctx, l.grant)))
	stored, err := l.Grant(ctx, l.key(id))
	if err != nil || stored.State != grant.Revoked || stored.Reason != grant.Replayed || stored.Generation != 5 {
		t.Errorf("%+v %v", stored, err)
	}
	l.events(audit.GrantRevoked, 1)
}

func TestFacts_ReturnsClientAndGrant(t *testing.T) {
	l := newStoreTest(t).pending()
	for _, c := range []struct {
		client        uuid.UUID
		grant         grant.Key
		known, member bool
	}{
		{l.grant.ClientID, l.grant.Key(), true, true},
		{l.grant.ClientID, grant.Key{}, true, false},
		{uuid.New(), l.grant.Key(), false, true},
	} {
		s, err := l.Snapshot(t.Context(), c.client, c.grant)
		if err != nil || (s.Client != nil) != c.known || (s.Grant != nil) != c.member || s.Member != c.member ||
			s.LLMEnabled != c.member || s.Held.Has(perm.ProgrammesRead) != c.member || s.UserDisabled ||
			s.Now.IsZero() {
			t.Errorf("client %s, grant %s: %+v %v", c.client, c.grant.ID, s, err)
		}
	}
}
