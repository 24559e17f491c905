package redis

import (
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// wants checks how long a caller has to wait.
func wants(t *testing.T, got, want time.Duration) {
	t.Helper()
	if got != want {
		t.Errorf("wait %s, want %s", got, want)
	}
}

// connected returns limits in the store, as a process has them.
func connected(t *testing.T, url string) *Limits {
	t.Helper()
	l, err := Connect(credential.Fixed(credential.Secret(url)), 0, slog.New(slog.DiscardHandler), time.Now)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestLocalLimits_HoldForAnyMinuteWithBoundedMemory(t *testing.T) {
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	l := newLocalLimits(func() time.Time { return now })
	for range 3 {
		wants(t, l.count("a", 3), 0)
		now = now.Add(10 * time.Second)
	}
	wants(t, l.count("a", 3), 30*time.Second)
	wants(t, l.count("b", 3), 0)
	now = now.Add(30 * time.Second) // a minute after the first, ten seconds less after the second
	wants(t, l.count("a", 3), 0)
	wants(t, l.count("a", 3), 10*time.Second)
	for i := range 3 * mostKeys {
		l.count(strconv.Itoa(i), 3)
		if i%(mostKeys/2) == 0 && l.count("in use", 6) != 0 {
			t.Error("a key is limited before its sixth event")
		}
	}
	if n := l.events.Len(); n > mostKeys {
		t.Errorf("%d keys", n)
	}
	if wait := l.count("in use", 6); wait == 0 {
		t.Error("other keys reset the count of a key in use")
	}
}

// The window is a minute of real time, so the test makes the events older instead of waiting.
func TestLimits_SharedLimitHoldsForAnyMinute(t *testing.T) {
	store := testkit.NewRedis(t)
	one, other := connected(t, store.URL), connected(t, store.URL) // two processes
	ctx := t.Context()
	for range 3 {
		wants(t, one.Count(ctx, "a", 4), 0)
	}
	age := func(by time.Duration) {
		t.Helper()
		events, err := one.Client.ZRangeWithScores(ctx, "events:a", 0, -1).Result()
		if err != nil || len(events) == 0 {
			t.Fatal(len(events), err)
		}
		for _, event := range events {
			member := event.Member.(string)
			testkit.Must(t, one.Client.ZIncrBy(ctx, "events:a", -float64(by.Milliseconds()), member).Err())
		}
	}
	began := time.Now()
	age(50 * time.Second)
	wants(t, other.Count(ctx, "a", 4), 0)
	if wait := other.Count(ctx, "a", 4); wait <= 10*time.Second-aMoment(began) || wait > 10*time.Second {
		t.Errorf("wait %s, want the rest of the minute of the first three", wait)
	}
	age(10 * time.Second) // the first three are a minute old, the fourth is not: there is room for three
	for range 3 {
		wants(t, one.Count(ctx, "a", 4), 0)
	}
	if wait := one.Count(ctx, "a", 4); wait <= 50*time.Second-aMoment(began) || wait > 50*time.Second {
		t.Errorf("wait %s", wait)
	}
	wants(t, one.Count(ctx, "b", 4), 0)
	if left := one.Client.PTTL(ctx, "events:a").Val(); left <= 0 || left > time.Minute {
		t.Errorf("expires in %s", left)
	}
}

func TestLimits_ConcurrentEventsAreCountedExactly(t *testing.T) {
	l := connected(t, testkit.NewRedis(t).URL)
	var passed atomic.Int64
	var group sync.WaitGroup
	for range 4 { // few: while connections are being made, a busy machine may take longer than Count waits for Redis
		group.Go(func() {
			for range 40 {
				if l.Count(t.Context(), "a", 120) == 0 {
					passed.Add(1)
				}
			}
		})
	}
	group.Wait()
	if passed.Load() != 120 {
		t.Errorf("%d of 160 passed", passed.Load())
	}
}

// aMoment returns the time since began, and what a call takes.
func aMoment(began time.Time) time.Duration { return time.Since(began) + time.Second }
