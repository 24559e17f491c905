package ratelimit

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

func TestLocalRate_CountsExpiresAndIsBounded(t *testing.T) {
	t.Parallel()
	now, local := time.Unix(1_000_000, 0), newLocalRate()
	for i := range 60 {
		if wait := local.take("k", 60, now); wait != 0 {
			t.Fatalf("event %d waits %v", i, wait)
		}
	}
	for _, c := range []struct {
		what, key   string
		after, want time.Duration
	}{
		{"full", "k", 0, time.Second},
		{"another key", "other", 0, 0},
		{"a second later", "k", time.Second, 0},
		{"full again", "k", time.Second, time.Second},
	} {
		if wait := local.take(c.key, 60, now.Add(c.after)); wait != c.want {
			t.Errorf("%s: wait %v, want %v", c.what, wait, c.want)
		}
	}
	for i := range maxLocalKeys + 10 {
		local.take("flood "+strconv.Itoa(i), 60, now)
	}
	if len(local.rest) > maxLocalKeys {
		t.Errorf("%d keys", len(local.rest))
	}
	later := now.Add(3 * time.Minute)
	if local.take("new", 60, later); len(local.rest) != 1 {
		t.Errorf("%d keys after all others were at rest", len(local.rest))
	}
}

// brokenRate always fails. A test with a real Redis is in endpoint/protocol/token.
type brokenRate struct{ asked atomic.Int64 }

func (b *brokenRate) Take(context.Context, string, int, int) (time.Duration, error) {
	b.asked.Add(1)
	return 0, errors.New("no answer")
}

func TestF3_CountsLocallyWithoutSharedRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		shared := &brokenRate{}
		c := NewLimiter(shared, slog.New(slog.NewTextHandler(&log, nil)), time.Now)
		go c.Share(t.Context())
		grant := uuid.New()
		for i := range PerGrant {
			if wait := c.ForGrant(grant); wait != 0 {
				t.Fatalf("failure %d waits %v", i, wait)
			}
		}
		time.Sleep(shareEvery + time.Millisecond)
		if wait := c.ForGrant(grant); wait != 0 { // some of the limit is free again
			t.Errorf("a little later: wait %v", wait)
		}
		for c.ForGrant(grant) == 0 {
		}
		if wait := c.ForGrant(grant); wait <= 0 || wait > time.Minute {
			t.Errorf("beyond the limit: wait %v", wait)
		}
		time.Sleep(distrustAfterFail / 2)
		synctest.Wait()
		if shared.asked.Load() != 1 {
			t.Errorf("shared rate called %d times while it failed", shared.asked.Load())
		}
		time.Sleep(distrustAfterFail)
		synctest.Wait()
		if n := shared.asked.Load(); n != 2 || strings.Count(log.String(), "in this process only") != 2 {
			t.Errorf("shared rate called %d times, want 2 calls with a log line each: %s", n, log.String())
		}
	})
}

// memory is a Rate in memory that several Limiters share in place of a store.
type memory struct {
	mu      sync.Mutex
	of      *localRate
	counted map[string]int
}

func (m *memory) Take(_ context.Context, key string, perMinute, n int) (time.Duration, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counted[key] += n
	for i := range n {
		if wait := m.of.take(key, perMinute, time.Now()); wait > 0 {
			return wait + time.Duration(n-i-1)*time.Minute/time.Duration(perMinute), nil
		}
	}
	return 0, nil
}

// A flood spread over ten processes gets little more full responses than with one process.
func TestF3_ProcessesShareLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := &memory{of: newLocalRate(), counted: map[string]int{}}
		processes := make([]*Limiter, 10)
		for i := range processes {
			processes[i] = NewLimiter(shared, slog.New(slog.DiscardHandler), time.Now)
			go processes[i].Share(t.Context())
		}
		grant, answered := uuid.New(), 0
		for range 10_000 { // within 10 s, in which one process lets 600 + 100 through
			for _, c := range processes {
				if c.ForGrant(grant) == 0 {
					answered++
				}
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(shareEvery)
		synctest.Wait()
		const alone, inOneRound = PerGrant + 100, 10 * 200
		if answered < alone || answered > inOneRound+alone {
			t.Errorf("%d full responses; one process allows %d, ten without sharing %d", answered, alone, 10*alone)
		}
		if all := shared.counted["grant:"+grant.String()]; all != answered {
			t.Errorf("%d full responses, but %d counted in the shared rate", answered, all)
		}
	})
}

// Invented names do not prevent the count of an attacked client from being shared.
func TestShare_SendsBusiestKeysFirst(t *testing.T) {
	t.Parallel()
	shared := &memory{of: newLocalRate(), counted: map[string]int{}}
	c := NewLimiter(shared, slog.New(slog.DiscardHandler), time.Now)
	for range 10 * maxPerShare {
		c.ForGrant(uuid.New())
	}
	busy := uuid.New()
	for range 3 {
		c.ForGrant(busy)
	}
	err := c.Report(t.Context())
	if most := shared.counted["grant:"+busy.String()]; err != nil || most != 3 || len(shared.counted) != maxPerShare {
		t.Errorf("%v: %d keys shared, the busiest with %d events", err, len(shared.counted), most)
	}
}

func TestF4_InventedClientsShareSlots(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	c := NewLimiter(&brokenRate{}, slog.New(slog.DiscardHandler), func() time.Time { return now })
	for range 1<<16 + 5000 {
		c.ForClient(uuid.NewString())
	}
	if len(c.local.rest) > 1<<16 || len(c.unsent) > 1<<16 {
		t.Errorf("%d keys", len(c.local.rest))
	}
}
