package redis

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// count returns how many of a hundred concurrent events are counted, and how many must wait, for a minute at most.
func count(t *testing.T, event func(key string) (time.Duration, error)) (counted, refused int64) {
	t.Helper()
	var within, beyond atomic.Int64
	var racers sync.WaitGroup
	for range 100 {
		racers.Go(func() {
			switch wait, err := event("k"); {
			case err != nil:
				t.Error(err)
			case wait == 0:
				within.Add(1)
			case wait > 0 && wait <= time.Minute:
				beyond.Add(1)
			}
		})
	}
	racers.Wait()
	if wait, err := event("other"); wait != 0 || err != nil {
		t.Errorf("another key: wait %v (%v)", wait, err)
	}
	return within.Load(), beyond.Load()
}

func TestLoginCounters_ConcurrentCallsStopAtLimit(t *testing.T) {
	rdb, _ := newClient(t, testkit.StoreWait)
	counters := NewLoginCounters(rdb)
	counted, refused := count(t, func(key string) (time.Duration, error) {
		return counters.Count(t.Context(), key, 10, time.Minute, true)
	})
	if counted != 10 || refused != 90 {
		t.Errorf("%d counted, %d refused, want 10 and 90", counted, refused)
	}
}

// A call that adds no event counts nothing.
func TestLoginCounters_EventsExpireOneByOne(t *testing.T) {
	rdb, _ := newClient(t, testkit.StoreWait)
	counters := NewLoginCounters(rdb)
	const window = time.Minute
	count := func(add bool) time.Duration {
		t.Helper()
		wait, err := counters.Count(t.Context(), "k", 2, window, add)
		must(t, err)
		return wait
	}
	age := func(by time.Duration) {
		t.Helper()
		keys, err := rdb.Keys(t.Context(), "*").Result()
		if err != nil || len(keys) != 1 {
			t.Fatalf("keys %v, %v", keys, err)
		}
		for _, event := range rdb.ZRange(t.Context(), keys[0], 0, -1).Val() {
			must(t, rdb.ZIncrBy(t.Context(), keys[0], -float64(by.Milliseconds()), event).Err())
		}
	}
	for range 5 {
		if wait := count(false); wait != 0 {
			t.Fatalf("nothing was added: wait %v", wait)
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

func TestRateLimits_ConcurrentCallsStopAtLimit(t *testing.T) {
	rdb, _ := newClient(t, testkit.StoreWait)
	rates := NewRateLimits(rdb)
	began := time.Now()
	counted, refused := count(t, func(key string) (time.Duration, error) { return rates.Take(t.Context(), key, 10, 1) })
	most := 11 + int64(time.Since(began)/(6*time.Second)) // one more every six seconds
	if counted < 10 || counted > most || counted+refused != 100 {
		t.Errorf("%d counted, %d refused, want 10 to %d counted", counted, refused, most)
	}
}

func TestTake_CountsSeveralEventsUpToLimit(t *testing.T) {
	rdb, server := newClient(t, testkit.StoreWait)
	rates := NewRateLimits(rdb)
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
	server.Stop()
	if wait, err := rates.Take(t.Context(), "k", 10, 1); err == nil {
		t.Errorf("without Redis: wait %v, want an error", wait)
	}
}

// loses is a hook that drops the first response after Redis has executed the command.
type loses struct {
	goredis.Hook
	dropped atomic.Bool
}

func (l *loses) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (l *loses) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (l *loses) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, command goredis.Cmder) error {
		err := next(ctx, command)
		if command.Name() == "evalsha" && err == nil && l.dropped.CompareAndSwap(false, true) {
			command.SetErr(context.DeadlineExceeded)
			return context.DeadlineExceeded
		}
		return err
	}
}

// together makes calls of First at once, and returns a key and how many of its calls were first. Both tries of a call
// have 250 ms: on a busy machine it begins again, with a key of its own, until all are in time.
func together(t *testing.T, cache *ReplayCache, calls int, begin func()) (key string, winners int32) {
	t.Helper()
	await.NoError(t, func() error {
		begin()
		key = uuid.NewString()
		var first atomic.Int32
		var group errgroup.Group
		for range calls {
			group.Go(func() error {
				won, err := cache.First(t.Context(), key, time.Minute)
				if won {
					first.Add(1)
				}
				return err
			})
		}
		err := group.Wait()
		winners = first.Load()
		return err
	})
	return key, winners
}

func TestReplayCache_AcceptsKeyOnce(t *testing.T) {
	client, server := newClient(t, testkit.StoreWait)
	cache, ctx := NewReplayCache(client), t.Context()
	key, winners := together(t, cache, 50, func() {})
	if winners != 1 {
		t.Errorf("%d calls were first", winners)
	}
	if life := client.PTTL(ctx, onceKey(key)).Val(); life <= 0 || life > time.Minute {
		t.Errorf("time to live %s", life)
	}
	if _, winners := together(t, cache, 1, func() {}); winners != 1 {
		t.Error("another key is not first")
	}
	lost := &loses{}
	client.AddHook(lost)
	key, winners = together(t, cache, 1, func() { lost.dropped.Store(false) })
	if winners != 1 || !lost.dropped.Load() {
		t.Errorf("a lost response counts as a replay; one was lost: %t", lost.dropped.Load())
	}
	await.NoError(t, func() error {
		first, err := cache.First(ctx, key, time.Minute)
		if first {
			t.Error("first twice")
		}
		return err
	})
	server.Stop()
	if first, err := cache.First(ctx, "d", time.Minute); first || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("stopped Redis: %v %v", first, err)
	}
}

// slow is a hook that sends commands after the deadline of their context.
type slow struct{ loses }

func (*slow) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, command goredis.Cmder) error {
		if end, bounded := ctx.Deadline(); bounded {
			time.Sleep(time.Until(end) + time.Millisecond)
		}
		return next(context.WithoutCancel(ctx), command)
	}
}

// A call that Redis receives after its deadline has recorded nothing, and is no replay.
func TestReplayCache_LateCallIsUnavailable(t *testing.T) {
	client, _ := newClient(t, testkit.StoreWait)
	cache := NewReplayCache(client)
	await.NoError(t, func() error { // it learns the clock of Redis
		_, err := cache.First(t.Context(), "a", time.Minute)
		return err
	})
	client.AddHook(&slow{})
	if first, err := cache.First(t.Context(), "b", time.Minute); !errors.Is(err, errLate) || first {
		t.Errorf("late: %t %v, want an error", first, err)
	}
}
