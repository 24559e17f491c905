package redis_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func connect(t *testing.T) goredis.UniversalClient {
	t.Helper()
	rdb, err := redis.Connect(credential.Fixed(credential.Secret(testkit.NewRedis(t).URL)), testkit.StoreWait)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func newLoginCounters(t *testing.T) *redis.LoginCounters {
	t.Helper()
	return redis.NewLoginCounters(connect(t))
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
	rdb := connect(t)
	counters := redis.NewLoginCounters(rdb)
	const window = time.Minute
	count := func(add bool) time.Duration {
		t.Helper()
		wait, err := counters.Count(t.Context(), "k", 2, window, add)
		if err != nil {
			t.Fatal(err)
		}
		return wait
	}
	age := func(by time.Duration) {
		t.Helper()
		keys, err := rdb.Keys(t.Context(), "*").Result()
		if err != nil || len(keys) != 1 {
			t.Fatalf("keys %v, %v", keys, err)
		}
		for _, event := range rdb.ZRange(t.Context(), keys[0], 0, -1).Val() {
			if err := rdb.ZIncrBy(t.Context(), keys[0], -float64(by.Milliseconds()), event).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	count(true)
	age(window / 2)
	count(true)
	wait := count(true)
	if wait <= 0 || wait > window/2 {
		t.Errorf("full: wait %v", wait)
	}
	age(wait)
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
