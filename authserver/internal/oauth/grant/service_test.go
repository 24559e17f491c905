package grant_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
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
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/seal"
)

const (
	resource  = "https://api.example.org/v1"
	challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
)

// A testEnv is a Service over real stores, with access to everything that a test may break.
type testEnv struct {
	*testing.T
	fixture *fixture.Fixture
	store   *postgres.Store
	redis   *localstore.Redis
	rdb     goredis.UniversalClient
	grants  *grant.Service
	codec   *grant.TokenCodec
	user    uuid.UUID
	app     client.Client // a connector
	// snapshotFirst makes requests read a snapshot first, as those of authenticated clients do.
	snapshotFirst bool
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	b := &testEnv{T: t, fixture: fixture.New(t), redis: testkit.NewRedis(t), snapshotFirst: snapshotFirst}
	var err error
	if b.store, err = openStore(t, b.fixture); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.store.Close)
	if b.rdb, err = redis.Connect(credential.Secret(b.redis.URL), redisWait); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.rdb.Close() })
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	if b.codec, err = grant.NewTokenCodec(seal.NewKeys(key)); err != nil {
		t.Fatal(err)
	}
	b.grants = grant.NewService(b.store, redis.NewGrants(b.rdb), b.codec, slog.New(slog.DiscardHandler))
	b.grants.WaitForRedis(redisWait)
	b.user = b.fixture.Member(perm.ProgrammesRead)
	b.app = b.fixture.Connector(resource, perm.ProgrammesRead)
	return b
}

// redisWait is longer than the default, for a busy machine, and short, since many tests wait for all of it.
const redisWait = 500 * time.Millisecond

func openStore(t *testing.T, f *fixture.Fixture) (*postgres.Store, error) {
	t.Helper()
	return postgres.OpenWithWait(t.Context(), credential.Secret(f.Database.Authserver), testkit.StoreWait)
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
	code, err := b.grants.Open(b.Context(), g, b.terms())
	if err != nil {
		b.Fatal(err)
	}
	return g, code
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
	token, err := b.grants.ReadToken(grant.Code, code)
	if err != nil {
		return grant.Issued{}, err
	}
	if !b.snapshotFirst && b.app.Kind == client.Connector {
		issued, done, err := b.grants.RedeemDirectly(context.Background(), token, terms, sender(key))
		if done || err != nil {
			return issued, err
		}
	}
	snapshot, err := b.grants.SnapshotWithSecret(context.Background(), terms.ClientID, token.GrantID, nil)
	if err != nil {
		return grant.Issued{}, err
	}
	return b.grants.Redeem(context.Background(), snapshot, token, terms, sender(key))
}

// sender returns the sender of requests with this Idempotency-Key.
func sender(key credential.Secret) grant.Sender {
	if key == "" {
		return grant.Sender{}
	}
	return grant.Sender{Proof: grant.ProofByKey(key)}
}

func (b *testEnv) rotate(refresh credential.Secret) (grant.Issued, error) {
	return b.rotateAs(refresh, b.app.ID, resource)
}

// rotateWith rotates with an Idempotency-Key.
func (b *testEnv) rotateWith(refresh, key credential.Secret) (grant.Issued, error) {
	return b.rotateBy(refresh, b.app.ID, resource, sender(key))
}

func (b *testEnv) rotateAs(refresh credential.Secret, id uuid.UUID, target string) (grant.Issued, error) {
	return b.rotateBy(refresh, id, target, grant.Sender{})
}

func (b *testEnv) rotateBy(
	refresh credential.Secret,
	id uuid.UUID,
	target string,
	sender grant.Sender,
) (grant.Issued, error) {
	token, err := b.grants.ReadToken(grant.Refresh, refresh)
	if err != nil {
		return grant.Issued{}, err
	}
	if !b.snapshotFirst {
		issued, done, err := b.grants.RotateDirectly(context.Background(), id, token, target, sender)
		if done || err != nil {
			return issued, err
		}
	}
	snapshot, err := b.grants.SnapshotWithSecret(context.Background(), id, token.GrantID, nil)
	if err != nil {
		return grant.Issued{}, err
	}
	return b.grants.Rotate(context.Background(), snapshot, token, id, target, sender)
}

// active consents and redeems the code.
func (b *testEnv) active() (grant.Grant, credential.Secret) {
	b.Helper()
	g, code := b.consent()
	issued, err := b.redeem(code, b.terms())
	if err != nil {
		b.Fatal(err)
	}
	return g, issued.Refresh
}

func (b *testEnv) mustRotate(refresh credential.Secret) credential.Secret {
	b.Helper()
	issued, err := b.rotate(refresh)
	if err != nil {
		b.Fatalf("a valid refresh failed: %v", err)
	}
	return issued.Refresh
}

func (b *testEnv) refused(what string, err error) {
	b.Helper()
	var refusal *grant.Refusal
	if !errors.As(err, &refusal) && !errors.Is(err, grant.ErrForged) {
		b.Errorf("%s: want a refusal, got %v", what, err)
	}
}

// state returns what Postgres holds.
func (b *testEnv) state(id uuid.UUID) grant.Grant {
	b.Helper()
	g, err := b.store.Grant(context.Background(), id)
	if err != nil {
		b.Fatal(err)
	}
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

func TestG1_CodeReuseRevokesGrant(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.consent()
	issued, err := b.redeem(code, b.terms())
	if err != nil || issued.Refresh == "" {
		t.Fatal(err)
	}
	b.wantActive(g.ID)
	_, err = b.redeem(code, b.terms())
	b.refused("second redemption", err)
	b.wantRevoked(g.ID, grant.CodeReused)
	_, err = b.rotate(issued.Refresh)
	b.refused("refresh after reuse", err)
}

// The reused code is read from Postgres before the code is used, and reaches Redis long after.
func TestG1_DelayedReuseRevokesGrant(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.consent()
	token, err := b.grants.ReadToken(grant.Code, code)
	if err != nil {
		t.Fatal(err)
	}
	before, err := b.grants.Snapshot(t.Context(), b.app.ID, g.ID)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := b.redeem(code, b.terms())
	if err != nil {
		t.Fatal(err)
	}
	refresh := b.mustRotate(issued.Refresh)
	guess := b.terms()
	guess.RedirectURI += "x"
	_, err = b.grants.Redeem(t.Context(), before, token, guess, grant.Sender{})
	b.refused("a guess", err)
	b.wantActive(g.ID)
	_, err = b.grants.Redeem(t.Context(), before, token, b.terms(), grant.Sender{})
	b.refused("a reuse", err)
	b.wantRevoked(g.ID, grant.CodeReused)
	_, err = b.grants.Redeem(t.Context(), before, token, b.terms(), grant.Sender{})
	b.refused("another", err)
	_, err = b.rotate(refresh)
	b.refused("refresh after reuse", err)
}

func TestG1_InvalidReuseChangesNothing(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.consent()
	issued, err := b.redeem(code, b.terms())
	if err != nil {
		t.Fatal(err)
	}
	other := b.fixture.Connector(resource, perm.ProgrammesRead)
	for name, change := range map[string]func(*grant.CodeTerms){
		"client":   func(c *grant.CodeTerms) { c.ClientID = other.ID },
		"redirect": func(c *grant.CodeTerms) { c.RedirectURI += "x" },
		"verifier": func(c *grant.CodeTerms) { c.Challenge = "x" },
		"resource": func(c *grant.CodeTerms) { c.Resource += "x" },
	} {
		terms := b.terms()
		change(&terms)
		_, err := b.redeem(code, terms)
		b.refused(name, err)
		b.wantActive(g.ID)
	}
	b.mustRotate(issued.Refresh)
}

func TestRedeem_FifthMismatchRevokesCode(t *testing.T) {
	b := newTestEnv(t)
	other := b.fixture.Connector(resource, perm.ProgrammesRead)
	wrong := func(code credential.Secret, times int) {
		for i := range times {
			terms := b.terms()
			switch i % 3 {
			case 0:
				terms.RedirectURI += "x"
			case 1:
				terms.Challenge = ""
			case 2:
				terms.Resource += "x"
			}
			_, err := b.redeem(code, terms)
			b.refused("mismatch", err)
		}
	}
	_, code := b.consent()
	wrong(code, 4)
	for range 6 {
		terms := b.terms()
		terms.ClientID = other.ID
		_, err := b.redeem(code, terms)
		b.refused("another client", err)
	}
	if _, err := b.redeem(code, b.terms()); err != nil {
		t.Errorf("after four mismatches: %v", err)
	}
	g, code := b.consent()
	wrong(code, 5)
	_, err := b.redeem(code, b.terms())
	b.refused("after five", err)
	b.wantRevoked(g.ID, grant.CodeGuessed)
}

func TestOpen_SecondApprovalReplacesCode(t *testing.T) {
	b := newTestEnv(t)
	g, first := b.consent()
	second, err := b.grants.Open(t.Context(), g, b.terms())
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.redeem(first, b.terms())
	b.refused("replaced code", err)
	if _, err := b.redeem(second, b.terms()); err != nil {
		t.Fatal(err)
	}
	_, err = b.redeem(first, b.terms())
	b.refused("replaced code after redemption", err)
	b.wantActive(g.ID)
	if _, err := b.grants.Open(t.Context(), g, b.terms()); !errors.Is(err, grant.ErrAlreadyUsed) {
		t.Errorf("approval after redemption: %v", err)
	}
	b.wantActive(g.ID)
}

func TestG3_SupersededTokenRevokesGrantAndForgedDoesNot(t *testing.T) {
	b := newTestEnv(t)
	g, first := b.active()
	refresh := first
	for range 3 {
		refresh = b.mustRotate(refresh)
	}
	forged, _ := newForeignCodec(t).New(grant.Refresh, g.ID, 1)
	_, err := b.rotate(forged)
	b.refused("forged", err)
	other := b.fixture.Connector(resource, perm.ProgrammesRead)
	_, err = b.rotateAs(first, other.ID, resource)
	b.refused("another client's", err)
	b.wantActive(g.ID)
	_, err = b.rotateAs(first, b.app.ID, resource+"x")
	b.refused("superseded, with a wrong resource", err)
	b.wantRevoked(g.ID, grant.Replayed)
	_, err = b.rotate(refresh)
	b.refused("current token of a revoked grant", err)
}

func newForeignCodec(t *testing.T) *grant.TokenCodec {
	t.Helper()
	c, err := grant.NewTokenCodec(seal.NewKeys(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRotate_DetectsReplayBeforeStanding(t *testing.T) {
	b := newTestEnv(t)
	g, first := b.active()
	b.mustRotate(first)
	b.fixture.SetLLM(false)
	_, err := b.rotate(first)
	b.refused("replay with LLM integration off", err)
	b.wantRevoked(g.ID, grant.Replayed)
}

func TestStandingRefusal_ConsumesNothing(t *testing.T) {
	b := newTestEnv(t)
	g, refresh := b.active()
	off := map[string][2]string{
		"membership": {
			`delete from account.memberships where user_id = $1`,
			`insert into account.memberships (tenant_id, user_id, permissions)
			select id, $1, '{programmes:read:programmes}' from account.tenants`,
		},
		"permissions": {
			`update account.memberships set permissions = '{}' where user_id = $1`,
			`update account.memberships set permissions = '{programmes:read:programmes}' where user_id = $1`,
		},
		"LLM": {
			`update account.tenant_features set enabled = false where $1::uuid is not null`,
			`update account.tenant_features set enabled = true where $1::uuid is not null`,
		},
		"user enabled": {
			`update account.users set disabled_at = now() where id = $1`,
			`update account.users set disabled_at = null where id = $1`,
		},
	}
	for name, sql := range off {
		b.fixture.Exec(sql[0], b.user)
		_, err := b.rotate(refresh)
		b.refused(name, err)
		_, code := b.consent()
		_, err = b.redeem(code, b.terms())
		b.refused(name+" at exchange", err)
		b.fixture.Exec(sql[1], b.user)
		if _, err := b.redeem(code, b.terms()); err != nil {
			t.Errorf("%s: the code was consumed by a refusal: %v", name, err)
		}
		refresh = b.mustRotate(refresh)
	}
	_, err := b.rotateAs(refresh, b.app.ID, resource+"/")
	var refusal *grant.Refusal
	if !errors.As(err, &refusal) || !refusal.Target {
		t.Errorf("wrong resource: %v", err)
	}
	b.mustRotate(refresh)
	b.wantActive(g.ID)
}

func TestG4_NothingSucceedsAtTheEnd(t *testing.T) {
	b := newTestEnv(t)
	g, refresh := b.active()
	b.fixture.Exec(`update account.grants set ends_at = now() where id = $1`, g.ID)
	_, err := b.rotate(refresh)
	b.refused("after the end, by Postgres's clock", err)
	g, refresh = b.active()
	if err := b.rdb.HSet(t.Context(), "g:{"+g.ID.String()+"}", "en", time.Now().UnixMilli()).Err(); err != nil {
		t.Fatal(err)
	}
	_, err = b.rotate(refresh)
	b.refused("after the end, by Redis's clock", err)
}

func TestRedeem_CodeExpires(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.consent()
	if err := b.rdb.HSet(t.Context(), "g:{"+g.ID.String()+"}", "cx", time.Now().UnixMilli()).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := b.redeem(code, b.terms())
	b.refused("expired code", err)
}

func TestG5_ConfidentialGrantHasNoRefreshToken(t *testing.T) {
	b := newTestEnv(t)
	b.app, _ = b.fixture.Confidential(perm.ProgrammesRead)
	g, refresh := b.active()
	if refresh != "" {
		t.Error("a refresh token was issued")
	}
	forged, _ := b.codec.New(grant.Refresh, g.ID, 1)
	_, err := b.rotate(forged)
	b.refused("refresh of a confidential grant", err)
}

func TestG6_OnlyHashesAreStored(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.consent()
	issued, err := b.redeem(code, b.terms())
	if err != nil {
		t.Fatal(err)
	}
	fields, err := b.rdb.HGetAll(t.Context(), "g:{"+g.ID.String()+"}").Result()
	if err != nil || len(fields) == 0 {
		t.Fatal(err)
	}
	for name, value := range fields {
		if value != "" && len(value) > 8 && (contains(code, value) || contains(issued.Refresh, value)) {
			t.Errorf("field %s holds a part of a token", name)
		}
	}
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

func TestG2_RaceHasOneWinnerAndRevokesGrant(t *testing.T) {
	b := newTestEnv(t)
	for range 10 {
		g, refresh := b.active()
		race(t, 16, func() error { _, err := b.rotate(refresh); return err })
		b.wantRevoked(g.ID, grant.Replayed)
		g, code := b.consent()
		race(t, 16, func() error { _, err := b.redeem(code, b.terms()); return err })
		b.wantRevoked(g.ID, grant.CodeReused)
	}
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

func TestG7_RevokedGrantStaysRevoked(t *testing.T) {
	b := newTestEnv(t)
	g, refresh := b.active()
	if err := b.grants.Revoke(t.Context(), b.state(g.ID), grant.ByUser, "user:x"); err != nil {
		t.Fatal(err)
	}
	_, err := b.rotate(refresh)
	b.refused("refresh", err)
	if err := b.rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	_, err = b.rotate(refresh)
	b.refused("refresh after FLUSHALL", err)
	b.wantRevoked(g.ID, grant.ByUser)
}

func TestService_SurvivesRedisDataLoss(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.consent()
	issued, err := b.redeem(code, b.terms())
	if err != nil {
		t.Fatal(err)
	}
	first := issued.Refresh
	current := b.mustRotate(first)
	flush := func() {
		if err := b.rdb.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	flush()
	current = b.mustRotate(current) // a correct client is not affected
	flush()
	_, err = b.redeem(code, b.terms())
	b.refused("used code", err)
	b.wantRevoked(g.ID, grant.CodeReused)
	_, err = b.rotate(current)
	b.refused("after reuse", err)

	g, first = b.active()
	b.mustRotate(first)
	flush()
	_, err = b.rotate(first)
	b.refused("superseded token", err)
	b.wantRevoked(g.ID, grant.Replayed)
}

func TestService_SurvivesRedisRestore(t *testing.T) {
	b := newTestEnv(t)
	g, first := b.active()
	key := "g:{" + g.ID.String() + "}"
	older, err := b.rdb.Dump(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	current := b.mustRotate(b.mustRotate(first))
	if err := b.rdb.RestoreReplace(t.Context(), key, 0, older).Err(); err != nil {
		t.Fatal(err)
	}
	current = b.mustRotate(current)
	if err := b.rdb.RestoreReplace(t.Context(), key, 0, older).Err(); err != nil {
		t.Fatal(err)
	}
	_, err = b.rotate(first) // current as far as the older copy knows
	b.refused("superseded token", err)
	b.wantRevoked(g.ID, grant.Replayed)
	_, err = b.rotate(current)
	b.refused("after the replay", err)
}

func TestService_RedisStallIsUnavailable(t *testing.T) {
	b := newTestEnv(t)
	_, refresh := b.active()
	_, code := b.consent()
	b.redis.Pause()
	_, err := b.rotate(refresh)
	unavailable(t, "refresh, Redis hanging", err)
	_, err = b.redeem(code, b.terms())
	unavailable(t, "exchange, Redis hanging", err)
	b.redis.Resume()
}

func unavailable(t *testing.T, what string, err error) {
	t.Helper()
	var refusal *grant.Refusal
	if !errors.Is(err, store.ErrUnavailable) || errors.As(err, &refusal) {
		t.Errorf("%s: %v", what, err)
	}
}

func TestService_CredentialsWorkAfterRedisOutage(t *testing.T) {
	b := newTestEnv(t)
	_, refresh := b.active()
	_, code := b.consent()
	b.redis.Stop()
	_, err := b.rotate(refresh)
	unavailable(t, "refresh", err)
	_, err = b.redeem(code, b.terms())
	unavailable(t, "exchange", err)
	_, err = b.grants.Open(t.Context(), b.pending(b.app), b.terms())
	unavailable(t, "consent", err)
	if err := b.redis.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.mustRotate(refresh)
	if _, err := b.redeem(code, b.terms()); err != nil {
		t.Errorf("the code does not work: %v", err)
	}
}

// failUpdates makes every update of a grant in Postgres fail until allowUpdates.
func (b *testEnv) failUpdates() {
	b.Helper()
	b.fixture.Exec(`create function account.no() returns trigger language plpgsql
		as $$ begin raise 'disk full'; end $$`)
	b.fixture.Exec(`create trigger no before update on account.grants for each row execute function account.no()`)
}

func (b *testEnv) allowUpdates() {
	b.Helper()
	b.fixture.Exec(`drop trigger no on account.grants`)
}

func TestG8_FailedCommitUndoesRotation(t *testing.T) {
	b := newTestEnv(t)
	g, refresh := b.active()
	_, code := b.consent()
	b.failUpdates()
	_, err := b.rotate(refresh)
	unavailable(t, "refresh", err)
	_, err = b.redeem(code, b.terms())
	unavailable(t, "exchange", err)
	b.allowUpdates()
	b.mustRotate(refresh)
	if _, err := b.redeem(code, b.terms()); err != nil {
		t.Errorf("the code does not work: %v", err)
	}
	b.wantActive(g.ID)
}

// However long another transaction locks the row, the decision ends in time to be undone.
func TestG8_LockedRowKeepsGrantUsable(t *testing.T) {
	b := newTestEnv(t)
	g, refresh := b.active()
	holder, err := b.fixture.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(t.Context(), `select id from account.grants where id = $1 for update`, g.ID); err != nil {
		t.Fatal(err)
	}
	_, err = b.rotate(refresh)
	unavailable(t, "refresh", err)
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.mustRotate(refresh)
	b.wantActive(g.ID)
}

func TestG8_RedisStallKeepsGrantUsable(t *testing.T) {
	b := newTestEnv(t)
	g, refresh := b.active()
	refresh = b.mustRotate(refresh) // so that Redis has loaded the script, and its run hangs
	_, code := b.consent()
	if err := b.redis.Pause(); err != nil {
		t.Fatal(err)
	}
	_, err := b.rotate(refresh)
	unavailable(t, "refresh", err)
	_, err = b.redeem(code, b.terms())
	unavailable(t, "exchange", err)
	b.redis.Resume()
	// Redis may be about to run the calls that hung.
	eventually(t, "refresh", func() error { _, err := b.rotate(refresh); return err })
	eventually(t, "exchange", func() error { _, err := b.redeem(code, b.terms()); return err })
	b.wantActive(g.ID)
}

// eventually repeats a call while it is unavailable.
func eventually(t *testing.T, what string, call func() error) {
	t.Helper()
	for range 100 {
		err := call()
		if err == nil {
			return
		}
		unavailable(t, what, err)
	}
	t.Errorf("%s: never succeeded", what)
}

func TestOpen_LastApprovalDeterminesPermissions(t *testing.T) {
	b := newTestEnv(t)
	g := b.pending(b.app)
	g.Permissions = perm.NewSet(perm.ProgrammesRead, perm.ProgrammesWrite)
	if _, err := b.grants.Open(t.Context(), g, b.terms()); err != nil {
		t.Fatal(err)
	}
	g.Permissions = perm.NewSet(perm.ProgrammesRead)
	code, err := b.grants.Open(t.Context(), g, b.terms())
	if err != nil {
		t.Fatal(err)
	}
	issued, err := b.redeem(code, b.terms())
	if err != nil || issued.Grant.Permissions.Scope() != "programmes:read:programmes" {
		t.Errorf("granted %s %v", issued.Grant.Permissions.Scope(), err)
	}
}

func TestG1_ReuseAfterConcurrentApprovalsRevokesGrant(t *testing.T) {
	b := newTestEnv(t)
	for range 20 {
		g := b.pending(b.app)
		codes := make([]credential.Secret, 2)
		var wg sync.WaitGroup
		for i := range codes {
			wg.Go(func() {
				var err error
				if codes[i], err = b.grants.Open(context.Background(), g, b.terms()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		redeemed := 0
		for _, code := range codes {
			if _, err := b.redeem(code, b.terms()); err != nil {
				continue
			}
			redeemed++
			_, err := b.redeem(code, b.terms())
			b.refused("reuse", err)
			b.wantRevoked(g.ID, grant.CodeReused)
		}
		if redeemed != 1 {
			t.Errorf("%d of two codes redeemed", redeemed)
		}
	}
}

// A lock prevents the first redemption from committing while Redis is restored to an older state.
func TestG1_ConfidentialCodeIsRedeemedOnceDespiteRedisRestore(t *testing.T) {
	b := newTestEnv(t)
	b.app, _ = b.fixture.Confidential(perm.ProgrammesRead)
	g, code := b.consent()
	key := "g:{" + g.ID.String() + "}"
	older, err := b.rdb.Dump(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	lock, err := b.fixture.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), `select from account.grants where id = $1 for update`, g.ID); err != nil {
		t.Fatal(err)
	}
	outcomes := make(chan error, 2)
	// Postgres may take the second step first. Redis then shows the loser a later decision, and its client must retry.
	redeem := func() {
		_, err := b.redeem(code, b.terms())
		for errors.Is(err, store.ErrUnavailable) && t.Context().Err() == nil {
			_, err = b.redeem(code, b.terms())
		}
		outcomes <- err
	}
	active := func() bool { return b.rdb.HGet(t.Context(), key, "st").Val() == "active" }
	go redeem()
	await.True(t, await.Long, "Redis activates the grant", active)
	if err := b.rdb.RestoreReplace(t.Context(), key, 0, older).Err(); err != nil {
		t.Fatal(err)
	}
	go redeem()
	await.True(t, await.Long, "Redis activates the grant", active)
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	won := 0
	for range 2 {
		if <-outcomes == nil {
			won++
		}
	}
	if won != 1 {
		t.Errorf("%d redemptions", won)
	}
	b.wantRevoked(g.ID, grant.CodeReused)
}

func TestG9_UncommittedRevocationIsNotReported(t *testing.T) {
	b := newTestEnv(t)
	g, first := b.active()
	b.mustRotate(first)
	b.failUpdates()
	_, err := b.rotate(first)
	unavailable(t, "replay", err)
	b.allowUpdates()
	_, err = b.rotate(first)
	b.refused("next presentation", err)
	b.wantRevoked(g.ID, grant.Replayed)
}

// Only Redis has revoked the grant. The next request, even with a current token, commits the revocation in Postgres.
func TestG9_ReportedRevocationIsCommitted(t *testing.T) {
	b := newTestEnv(t)
	replayed, first := b.active()
	second := b.mustRotate(first)
	guessed, code := b.consent()
	wrong := b.terms()
	wrong.Challenge = "another"
	for range 4 {
		_, err := b.redeem(code, wrong)
		b.refused("a guess", err)
	}
	b.failUpdates()
	_, err := b.redeem(code, wrong)
	unavailable(t, "the fifth guess", err)
	// A replay raced the rotation, and its process died before it could commit.
	if err := redis.NewGrants(b.rdb).Revoke(t.Context(), replayed.ID, grant.Replayed, replayed.Ends); err != nil {
		t.Fatal(err)
	}
	_, err = b.rotate(second)
	unavailable(t, "the current token, while nothing can be committed", err)
	b.allowUpdates()
	_, err = b.rotate(second)
	b.refused("the current token", err)
	b.wantRevoked(replayed.ID, grant.Replayed)
	_, err = b.redeem(code, b.terms())
	b.refused("the code", err)
	b.wantRevoked(guessed.ID, grant.CodeGuessed)
}

// dropReplies is a go-redis hook that drops the responses of commands while it is on, after Redis has run them.
type dropReplies struct {
	goredis.Hook
	on atomic.Bool
}

func (s *dropReplies) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (s *dropReplies) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (s *dropReplies) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, command goredis.Cmder) error {
		err := next(ctx, command)
		if s.on.Load() && err == nil {
			command.SetErr(io.EOF)
			return io.EOF
		}
		return err
	}
}

// anotherProcess returns a Service over the same stores that shares no memory with the first one.
func (b *testEnv) anotherProcess() *testEnv {
	b.Helper()
	rdb, err := redis.Connect(credential.Secret(b.redis.URL), 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = rdb.Close() })
	other := *b
	other.rdb = rdb
	other.grants = grant.NewService(b.store, redis.NewGrants(rdb), b.codec, slog.New(slog.DiscardHandler))
	return &other
}

// Redis decides each time, and no response arrives. The retries go to another process.
func TestG10_LostReplyIsUndoneForEveryProcess(t *testing.T) {
	b := newTestEnv(t)
	lost := &dropReplies{}
	b.rdb.AddHook(lost)
	other := b.anotherProcess()
	g, code := b.consent()
	for range 3 {
		lost.on.Store(true)
		_, err := b.redeem(code, b.terms())
		unavailable(t, "exchange", err)
		lost.on.Store(false)
	}
	issued, err := other.redeem(code, b.terms())
	if err != nil {
		t.Fatalf("the code does not work: %v", err)
	}
	refresh, first := issued.Refresh, issued.Refresh
	for range 10 { // more often than nonces are remembered
		lost.on.Store(true)
		_, err := b.rotate(refresh)
		unavailable(t, "refresh", err)
		lost.on.Store(false)
		refresh = other.mustRotate(refresh)
	}
	b.wantActive(g.ID)
	_, err = other.rotate(first)
	b.refused("a superseded token", err)
	b.wantRevoked(g.ID, grant.Replayed)
}

// A client gets a response within 300 ms although Redis is stalled, and its immediate retries succeed as soon as Redis
// continues. Some of the calls have reached Redis and run then.
func TestG10_EveryRetrySucceedsAfterRedisStall(t *testing.T) {
	b := newTestEnv(t)
	other := b.anotherProcess()
	const clients = 20
	var group, waiting sync.WaitGroup
	begin := make(chan struct{})
	try := func(what string, send func(*testEnv) error) {
		waiting.Add(1)
		group.Go(func() {
			<-begin
			refused := sync.OnceFunc(waiting.Done)
			defer refused()
			for n := range 100 {
				began := time.Now()
				err := send([]*testEnv{b, other}[n%2])
				if took := time.Since(began); took > 300*time.Millisecond && errors.Is(err, store.ErrUnavailable) {
					t.Logf("%s: answered after %s", what, took)
				}
				if err == nil {
					return
				}
				unavailable(t, what, err)
				refused()
			}
			t.Errorf("%s: never succeeded", what)
		})
	}
	replayed, superseded := b.active()
	b.mustRotate(b.mustRotate(superseded))
	for range clients {
		_, refresh := b.active()
		refresh = other.mustRotate(b.mustRotate(refresh))
		try("refresh", func(by *testEnv) error { _, err := by.rotate(refresh); return err })
		_, code := b.consent()
		try("exchange", func(by *testEnv) error { _, err := by.redeem(code, b.terms()); return err })
	}
	if err := b.redis.Pause(); err != nil {
		t.Fatal(err)
	}
	close(begin)
	var err error
	for err = store.ErrUnavailable; errors.Is(err, store.ErrUnavailable) && t.Context().Err() == nil; {
		_, err = b.rotate(superseded) // two generations old: Postgres alone proves the replay
	}
	b.refused("a superseded token", err)
	b.wantRevoked(replayed.ID, grant.Replayed)
	waiting.Wait() // until each client was refused
	b.redis.Resume()
	group.Wait()
}
