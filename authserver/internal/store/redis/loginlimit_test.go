package redis_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func newLoginCounters(t *testing.T) *redis.LoginCounters {
	t.Helper()
	rdb, err := redis.Connect(credential.Secret(testkit.NewRedis(t).URL))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rdb.Close() })
	return redis.NewLoginCounters(rdb)
}

func TestLoginCounters_ConcurrentCallsStopAtLimit(t *testing.T) {
	counters := newLoginCounters(t)
	var counted, refused atomic.Int64
	var racers sync.WaitGroup
	for range 100 {
		racers.Go(func() {
			wait, err := counters.Count(t.Context(), "k", 10, time.Minute, true)
			switch {
			case err != nil:
				t.Error(err)
			case wait == 0:
				counted.Add(1)
			case wait > 0 && wait <= time.Minute:
				refused.Add(1)
			}
		})
	}
	racers.Wait()
	if counted.Load() != 10 || refused.Load() != 90 {
		t.Errorf("%d counted, %d refused", counted.Load(), refused.Load())
	}
	if wait, err := counters.Count(t.Context(), "other", 10, time.Minute, false); wait != 0 || err != nil {
		t.Errorf("another key: wait %v (%v)", wait, err)
	}
}

func TestLoginCounters_EventsExpireOneByOne(t *testing.T) {
	counters := newLoginCounters(t)
	const window = 600 * time.Millisecond
	count := func(add bool) time.Duration {
		t.Helper()
		wait, err := counters.Count(t.Context(), "k", 2, window, add)
		if err != nil {
			t.Fatal(err)
		}
		return wait
	}
	began := time.Now()
	count(true)
	time.Sleep(window / 2)
	count(true)
	wait := count(true)
	if wait <= 0 || wait > window-time.Since(began)+window/10 {
		t.Errorf("full: wait %v", wait)
	}
	time.Sleep(wait)
	if wait := count(false); wait != 0 {
		t.Errorf("after the first event expired: wait %v", wait)
	}
	count(true)
	if wait := count(false); wait <= 0 || wait > window {
		t.Errorf("full again with the second event and the new one: wait %v", wait)
	}
}

func TestLoginCounters_CheckWithoutAddCountsNothing(t *testing.T) {
	counters := newLoginCounters(t)
	for range 5 {
		if wait, err := counters.Count(t.Context(), "k", 1, time.Minute, false); wait != 0 || err != nil {
			t.Fatalf("wait %v (%v)", wait, err)
		}
	}
}
