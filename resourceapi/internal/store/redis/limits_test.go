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

func TestLocalLimits_HoldForAnyMinuteWithBoundedMemory(t *testing.T) {
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	l := newLocalLimits(func() time.Time { return now })
	for range 3 {
		if wait := l.count("a", 3); wait != 0 {
			t.Fatal(wait)
		}
		now = now.Add(10 * time.Second)
	}
	if wait := l.count("a", 3); wait != 30*time.Second {
		t.Error(wait)
	}
	if wait := l.count("b", 3); wait != 0 {
		t.Error(wait)
	}
	now = now.Add(30 * time.Second) // a minute after the first, ten seconds less after the second
	if wait := l.count("a", 3); wait != 0 {
		t.Error(wait)
	}
	if wait := l.count("a", 3); wait != 10*time.Second {
		t.Error(wait)
	}
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
	open := func() *Limits {
		l, err := Connect(credential.Fixed(credential.Secret(store.URL)), 0, slog.New(slog.DiscardHandler), time.Now)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	one, other := open(), open() // two processes
	ctx := t.Context()
	for range 3 {
		if wait := one.Count(ctx, "a", 4); wait != 0 {
			t.Fatal(wait)
		}
	}
	age := func(by time.Duration) {
		t.Helper()
		events, err := one.Client.ZRangeWithScores(ctx, "events:a", 0, -1).Result()
		if err != nil || len(events) == 0 {
			t.Fatal(len(events), err)
		}
		for _, event := range events {
			member := event.Member.(string)
			if err := one.Client.ZIncrBy(ctx, "events:a", -float64(by.Milliseconds()), member).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	began := time.Now()
	age(50 * time.Second)
	if wait := other.Count(ctx, "a", 4); wait != 0 {
		t.Fatal(wait)
	}
	if wait := other.Count(ctx, "a", 4); wait <= 10*time.Second-aMoment(began) || wait > 10*time.Second {
		t.Errorf("wait %s, want the rest of the minute of the first three", wait)
	}
	age(10 * time.Second) // the first three are a minute old, the fourth is not: there is room for three
	for range 3 {
		if wait := one.Count(ctx, "a", 4); wait != 0 {
			t.Fatal(wait)
		}
	}
	if wait := one.Count(ctx, "a", 4); wait <= 50*time.Second-aMoment(began) || wait > 50*time.Second {
		t.Errorf("wait %s", wait)
	}
	if wait := one.Count(ctx, "b", 4); wait != 0 {
		t.Error(wait)
	}
	if left := one.Client.PTTL(ctx, "events:a").Val(); left <= 0 || left > time.Minute {
		t.Errorf("expires in %s", left)
	}
}

func TestLimits_ConcurrentEventsAreCountedExactly(t *testing.T) {
	store := testkit.NewRedis(t)
	l, err := Connect(credential.Fixed(credential.Secret(store.URL)), 0, slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
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
