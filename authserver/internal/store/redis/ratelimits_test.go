package redis_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func newRates(t *testing.T) (*redis.RateLimits, *localstore.Redis) {
	t.Helper()
	server := testkit.NewRedis(t)
	rdb, err := redis.Connect(credential.Fixed(credential.Secret(server.URL)), testkit.StoreWait)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rdb.Close() })
	return redis.NewRateLimits(rdb), server
}

func TestRateLimits_ConcurrentCallsStopAtLimit(t *testing.T) {
	rates, _ := newRates(t)
	var counted, refused atomic.Int64
	var racers sync.WaitGroup
	began := time.Now()
	for range 100 {
		racers.Go(func() {
			wait, err := rates.Take(t.Context(), "k", 10, 1)
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
	most := 11 + int64(time.Since(began)/(6*time.Second)) // one more every six seconds
	if counted.Load() < 10 || counted.Load() > most || counted.Load()+refused.Load() != 100 {
		t.Errorf("%d counted, %d refused", counted.Load(), refused.Load())
	}
	if wait, err := rates.Take(t.Context(), "other", 10, 1); wait != 0 || err != nil {
		t.Errorf("another key: wait %v (%v)", wait, err)
	}
}

func TestTake_CountsSeveralEventsUpToLimit(t *testing.T) {
	rates, _ := newRates(t)
	for _, c := range []struct {
		n           int
		least, most time.Duration
	}{
		{8, 0, 0},                               // 2 remain
		{5, 18 * time.Second, 18 * time.Second}, // 3 exceed the limit; one is free again every 6 s
		{1, time.Second, 6 * time.Second},
	} {
		if wait, err := rates.Take(t.Context(), "k", 10, c.n); wait < c.least || wait > c.most || err != nil {
			t.Errorf("%d: wait %v (%v), want %v to %v", c.n, wait, err, c.least, c.most)
		}
	}
}

func TestTake_FailsWithoutRedis(t *testing.T) {
	rates, server := newRates(t)
	server.Stop()
	if _, err := rates.Take(t.Context(), "k", 10, 1); err == nil {
		t.Error("no error without Redis")
	}
}
