package redis

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/crypt/credential"
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

func TestReplayCache_AcceptsKeyOnce(t *testing.T) {
	server := testkit.NewRedis(t)
	client, err := Connect(credential.Fixed(credential.Secret(server.URL)), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	cache, ctx := NewReplayCache(client), t.Context()
	var winners atomic.Int32
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if first, err := cache.First(ctx, "a", time.Minute); err == nil && first {
				winners.Add(1)
			}
		})
	}
	group.Wait()
	if winners.Load() != 1 {
		t.Errorf("%d calls were first", winners.Load())
	}
	if first, err := cache.First(ctx, "b", time.Second); err != nil || !first {
		t.Errorf("another key: %v %v", first, err)
	}
	if life := client.PTTL(ctx, onceKey("a")).Val(); life <= 0 || life > time.Minute {
		t.Errorf("time to live %s", life)
	}
	client.AddHook(&loses{})
	if first, err := cache.First(ctx, "c", time.Minute); err != nil || !first {
		t.Errorf("a lost response counts as a replay: %v %v", first, err)
	}
	if first, _ := cache.First(ctx, "c", time.Minute); first {
		t.Error("first twice")
	}
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
	if first, err := cache.First(t.Context(), "a", time.Minute); err != nil || !first {
		t.Errorf("first: %t %v", first, err)
	}
	client.AddHook(&slow{})
	if first, err := cache.First(t.Context(), "b", time.Minute); !errors.Is(err, errLate) || first {
		t.Errorf("late: %t %v, want an error", first, err)
	}
}
