package redis

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

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
	server := testkit.NewRedis(t)
	client, err := Connect(credential.Fixed(credential.Secret(server.URL)), testkit.StoreWait)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
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
	client, err := Connect(credential.Fixed(credential.Secret(testkit.NewRedis(t).URL)), testkit.StoreWait)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
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
