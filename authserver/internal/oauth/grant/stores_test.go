package grant_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func TestG7_RevokedGrantStaysRevoked(t *testing.T) {
	t.Parallel()
	b := ownRedis(t)
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
	t.Parallel()
	b := ownRedis(t)
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
	t.Parallel()
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
	t.Parallel()
	b := ownRedis(t)
	_, refresh := b.active()
	_, code := b.consent()
	b.redis.Pause()
	b.grants.SetRedisTime(short)
	_, err := b.rotate(refresh)
	unavailable(t, "refresh, Redis hanging", err)
	_, err = b.redeem(code, b.terms())
	unavailable(t, "exchange, Redis hanging", err)
	b.redis.Resume()
}

func TestService_CredentialsWorkAfterRedisOutage(t *testing.T) {
	t.Parallel()
	b := ownRedis(t)
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

func TestG8_FailedCommitUndoesRotation(t *testing.T) {
	t.Parallel()
	b := ownStores(t)
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
	t.Parallel()
	b := newTestEnv(t)
	hasty, err := openStore(t, b.fixture, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer hasty.Close()
	g, refresh := b.active()
	holder, err := b.fixture.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(t.Context(), `select id from account.grants where id = $1 for update`, g.ID); err != nil {
		t.Fatal(err)
	}
	locked := *b
	locked.grants = b.service(hasty)
	_, err = locked.rotate(refresh)
	unavailable(t, "refresh", err)
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.mustRotate(refresh)
	b.wantActive(g.ID)
}

func TestG8_RedisStallKeepsGrantUsable(t *testing.T) {
	t.Parallel()
	b := ownRedis(t)
	g, refresh := b.active()
	refresh = b.mustRotate(refresh) // so that Redis has loaded the script, and its run hangs
	_, code := b.consent()
	if err := b.redis.Pause(); err != nil {
		t.Fatal(err)
	}
	b.grants.SetRedisTime(short)
	_, err := b.rotate(refresh)
	unavailable(t, "refresh", err)
	_, err = b.redeem(code, b.terms())
	unavailable(t, "exchange", err)
	b.grants.SetRedisTime(testkit.SilentStoreWait)
	b.redis.Resume()
	// Redis may be about to run the calls that hung.
	eventually(t, "refresh", func() error { _, err := b.rotate(refresh); return err })
	eventually(t, "exchange", func() error { _, err := b.redeem(code, b.terms()); return err })
	b.wantActive(g.ID)
}

func TestG9_UncommittedRevocationIsNotReported(t *testing.T) {
	t.Parallel()
	b := ownStores(t)
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
	t.Parallel()
	b := ownStores(t)
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

// A lost response of Redis is asked for again with the same nonce, and gets the same decision.
func TestG8_LostReplyIsAskedForAgain(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	lost := &dropReplies{}
	b.rdb.AddHook(lost)
	g, code := b.consent()
	lost.next.Store(true)
	issued, err := b.redeem(code, b.terms())
	if err != nil || lost.next.Load() {
		t.Fatalf("exchange: %v", err)
	}
	for range 2 {
		lost.next.Store(true)
		issued.Refresh = b.mustRotate(issued.Refresh)
		if lost.next.Load() {
			t.Fatal("no response was dropped")
		}
	}
	b.wantActive(g.ID)
	if !strings.Contains(b.log.String(), "Redis script retried") {
		t.Error("the retry is not in the log")
	}
}

// Redis decides each time, and no response arrives. The retries go to another process.
func TestG10_LostReplyIsUndoneForEveryProcess(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	lost := &dropReplies{}
	b.rdb.AddHook(lost)
	other := b.anotherProcess()
	g, code := b.consent()
	lost.on.Store(true)
	b.grants.SetRedisTime(short) // it gets no response
	for range 3 {
		_, err := b.redeem(code, b.terms())
		unavailable(t, "exchange", err)
	}
	issued, err := other.redeem(code, b.terms())
	if err != nil {
		t.Fatalf("the code does not work: %v", err)
	}
	refresh, first := issued.Refresh, issued.Refresh
	for range 10 { // more often than nonces are remembered
		_, err := b.rotate(refresh)
		unavailable(t, "refresh", err)
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
	t.Parallel()
	b := ownRedis(t)
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
			end := time.Now().Add(await.Long)
			for n := 0; time.Now().Before(end); n++ {
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
	b.grants.SetRedisTime(10 * short)
	other.grants.SetRedisTime(10 * short)
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
