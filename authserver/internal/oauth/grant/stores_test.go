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
	b := ownRedis(t)
	g, refresh := b.active()
	testkit.Must(t, b.grants.Revoke(t.Context(), b.state(g.ID), grant.ByUser, "user:x"))
	b.refused("refresh")(b.rotate(refresh))
	testkit.Must(t, b.rdb.FlushAll(t.Context()).Err())
	b.refused("refresh after FLUSHALL")(b.rotate(refresh))
	b.wantRevoked(g.ID, grant.ByUser)
}

func TestService_SurvivesRedisDataLoss(t *testing.T) {
	b := ownRedis(t)
	g, code := b.consent()
	first := b.mustRedeem(code).Refresh
	current := b.mustRotate(first)
	flush := func() { testkit.Must(t, b.rdb.FlushAll(t.Context()).Err()) }
	flush()
	current = b.mustRotate(current) // a correct client is not affected
	flush()
	b.refused("used code")(b.redeem(code, b.terms()))
	b.wantRevoked(g.ID, grant.CodeReused)
	b.refused("after reuse")(b.rotate(current))

	g, first = b.active()
	b.mustRotate(first)
	flush()
	b.refused("superseded token")(b.rotate(first))
	b.wantRevoked(g.ID, grant.Replayed)
}

func TestService_SurvivesRedisRestore(t *testing.T) {
	b := newTestEnv(t)
	g, first := b.active()
	restore := b.saved(g)
	current := b.mustRotate(b.mustRotate(first))
	restore()
	current = b.mustRotate(current)
	restore()
	b.refused("superseded token")(b.rotate(first)) // current as far as the older copy knows
	b.wantRevoked(g.ID, grant.Replayed)
	b.refused("after the replay")(b.rotate(current))
}

func TestService_CredentialsWorkAfterRedisOutage(t *testing.T) {
	b := ownRedis(t)
	_, refresh := b.active()
	_, code := b.consent()
	b.redis.Stop()
	b.unavailable("refresh")(b.rotate(refresh))
	b.unavailable("exchange")(b.redeem(code, b.terms()))
	_, err := b.grants.Open(t.Context(), b.pending(b.app), b.terms())
	unavailable(t, "consent", err)
	testkit.Must(t, b.redis.Restart(t.Context()))
	b.mustRotate(refresh)
	b.mustRedeem(code)
}

func TestG8_FailedCommitUndoesRotation(t *testing.T) {
	b := ownStores(t)
	g, refresh := b.active()
	_, code := b.consent()
	b.failUpdates()
	b.unavailable("refresh")(b.rotate(refresh))
	b.unavailable("exchange")(b.redeem(code, b.terms()))
	b.allowUpdates()
	b.mustRotate(refresh)
	b.mustRedeem(code)
	b.wantActive(g.ID)
}

// However long another transaction locks the row, the decision ends in time to be undone.
func TestG8_LockedRowKeepsGrantUsable(t *testing.T) {
	b := newTestEnv(t)
	hasty, err := openStore(t, b.fixture, time.Second)
	testkit.Must(t, err)
	defer hasty.Close()
	g, refresh := b.active()
	unlock := b.lock(g)
	b.unavailable("refresh")(b.over(hasty).rotate(refresh))
	unlock()
	b.mustRotate(refresh)
	b.wantActive(g.ID)
}

func TestG8_RedisStallKeepsGrantUsable(t *testing.T) {
	b := ownRedis(t)
	g, refresh := b.active()
	refresh = b.mustRotate(refresh) // so that Redis has loaded the script, and its run hangs
	_, code := b.consent()
	testkit.Must(t, b.redis.Pause())
	b.grants.SetRedisTime(short)
	b.unavailable("refresh")(b.rotate(refresh))
	b.unavailable("exchange")(b.redeem(code, b.terms()))
	b.grants.SetRedisTime(testkit.SilentStoreWait)
	b.redis.Resume()
	// Redis may be about to run the calls that hung.
	eventually(t, "refresh", func() error { _, err := b.rotate(refresh); return err })
	eventually(t, "exchange", func() error { _, err := b.redeem(code, b.terms()); return err })
	b.wantActive(g.ID)
}

func TestG9_UncommittedRevocationIsNotReported(t *testing.T) {
	b := ownStores(t)
	g, first := b.active()
	b.mustRotate(first)
	b.failUpdates()
	b.unavailable("replay")(b.rotate(first))
	b.allowUpdates()
	b.refused("next presentation")(b.rotate(first))
	b.wantRevoked(g.ID, grant.Replayed)
}

// Only Redis has revoked the grant. The next request, even with a current token, commits the revocation in Postgres.
func TestG9_ReportedRevocationIsCommitted(t *testing.T) {
	b := ownStores(t)
	replayed, first := b.active()
	second := b.mustRotate(first)
	guessed, code := b.consent()
	wrong := b.terms()
	wrong.Challenge = "another"
	for range 4 {
		b.refused("a guess")(b.redeem(code, wrong))
	}
	b.failUpdates()
	b.unavailable("the fifth guess")(b.redeem(code, wrong))
	// A replay raced the rotation, and its process died before it could commit.
	testkit.Must(t, redis.NewGrants(b.rdb).Revoke(t.Context(), replayed.ID, grant.Replayed, replayed.Ends))
	b.unavailable("the current token, while nothing can be committed")(b.rotate(second))
	b.allowUpdates()
	b.refused("the current token")(b.rotate(second))
	b.wantRevoked(replayed.ID, grant.Replayed)
	b.refused("the code")(b.redeem(code, b.terms()))
	b.wantRevoked(guessed.ID, grant.CodeGuessed)
}

// A lost response of Redis is asked for again with the same nonce, and gets the same decision.
func TestG8_LostReplyIsAskedForAgain(t *testing.T) {
	b := newTestEnv(t)
	lost := &dropReplies{}
	b.rdb.AddHook(lost)
	g, code := b.consent()
	lost.next.Store(true)
	refresh := b.mustRedeem(code).Refresh
	for range 3 {
		if lost.next.Swap(true) {
			t.Fatal("no response was dropped")
		}
		refresh = b.mustRotate(refresh)
	}
	b.wantActive(g.ID)
	if !strings.Contains(b.log.String(), "Redis script retried") {
		t.Error("the retry is not in the log")
	}
}

// Redis decides each time, and no response arrives. The retries go to another process.
func TestG10_LostReplyIsUndoneForEveryProcess(t *testing.T) {
	b := newTestEnv(t)
	lost := &dropReplies{}
	b.rdb.AddHook(lost)
	other := b.anotherProcess()
	g, code := b.consent()
	lost.on.Store(true)
	b.grants.SetRedisTime(short) // it gets no response
	for range 3 {
		b.unavailable("exchange")(b.redeem(code, b.terms()))
	}
	first := other.mustRedeem(code).Refresh
	refresh := first
	for range 10 { // more often than nonces are remembered
		b.unavailable("refresh")(b.rotate(refresh))
		refresh = other.mustRotate(refresh)
	}
	b.wantActive(g.ID)
	b.refused("a superseded token")(other.rotate(first))
	b.wantRevoked(g.ID, grant.Replayed)
}

// A client's immediate retries succeed as soon as Redis, which was stalled, continues. Some of the calls have reached
// Redis and run then.
func TestG10_EveryRetrySucceedsAfterRedisStall(t *testing.T) {
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
				err := send([]*testEnv{b, other}[n%2])
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
	testkit.Must(t, b.redis.Pause())
	b.grants.SetRedisTime(10 * short)
	other.grants.SetRedisTime(10 * short)
	close(begin)
	var issued grant.Issued
	var err error
	for err = store.ErrUnavailable; errors.Is(err, store.ErrUnavailable) && t.Context().Err() == nil; {
		issued, err = b.rotate(superseded) // two generations old: Postgres alone proves the replay
	}
	b.refused("a superseded token")(issued, err)
	b.wantRevoked(replayed.ID, grant.Replayed)
	waiting.Wait() // until each client was refused
	b.redis.Resume()
	group.Wait()
}
