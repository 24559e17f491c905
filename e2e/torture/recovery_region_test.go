package torture

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// A region is lost with its Postgres, its Redis and its services. Another region has a standby, the keys and an empty
// Redis. All data that the standby received works there, except codes that were not redeemed.
func TestRecovery_SecondRegionTakesOver(t *testing.T) {
	onlyLong(t, "recovery", takesMinutes)
	var outage time.Duration
	harness.Record(
		t,
		"Postgres, Redis and services killed, the standby promoted, services started with an empty Redis; every kind "+
			"of request succeeded within %s",
		harness.Deferred[time.Duration](func() time.Duration { return outage.Round(10 * time.Millisecond) }),
	)
	s := newRecoveryStage(t)
	s.replicate(t, modes()[0])
	w := newWorkload(t, s.Product)
	d := newBaseline(t, w.site, func() {})
	s.waitForStandby(t)
	redis := newRedis(t)
	services := append([]*stack.Service{s.running.Resourceapi, s.running.Worker}, s.running.Authservers...)

	began := time.Now()
	s.primary.Kill()
	s.running.Redis.Kill()
	for _, service := range services {
		service.Kill()
	}
	s.promote(t)
	for _, service := range append(s.running.Authservers, services[:2]...) {
		service.Set("ALMONER_REDIS_URL", redis.URL)
		must(t, service.Restart(context.WithoutCancel(t.Context())))
	}
	w.waitForCalm(t)
	outage = time.Since(began)
	d.wantsKept(t)
}

// waitForStandby waits until the standby has received and applied everything.
func (s *recoveryStage) waitForStandby(t *testing.T) {
	t.Helper()
	const behind = "select count(*) from pg_stat_replication where replay_lsn < pg_current_wal_lsn()"
	wantSoon(t, "the standby has everything", func() bool { return command(t, s.primary, behind) == "0" })
}

// newRedis starts another, empty Redis.
func newRedis(t *testing.T) *localstore.Redis {
	t.Helper()
	home, err := localstore.TempDir("almoner-redis-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	must(t, os.Chmod(home, 0o711)) // the server's user must be able to enter it
	options := localstore.Options{Dir: filepath.Join(home, "redis"), Volatile: true}
	redis, err := localstore.StartRedis(t.Context(), options)
	must(t, err)
	t.Cleanup(redis.Stop)
	return redis
}
