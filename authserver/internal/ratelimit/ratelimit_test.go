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

func TestTheLocalRateCountsForgetsAndStaysSmall(t *testing.T) {
	now, local := time.Unix(1_000_000, 0), newLocalRate()
	for i := range 60 {
		if wait := local.take("k", 60, now); wait != 0 {
			t.Fatalf("event %d waits %v", i, wait)
		}
	}
	if wait := local.take("k", 60, now); wait != time.Second {
		t.Errorf("full: wait %v, want a second", wait)
	}
	if wait := local.take("other", 60, now); wait != 0 {
		t.Errorf("another key waits %v", wait)
	}
	if wait := local.take("k", 60, now.Add(time.Second)); wait != 0 {
		t.Errorf("a second later: wait %v", wait)
	}
	if wait := local.take("k", 60, now.Add(time.Second)); wait != time.Second {
		t.Errorf("full again: wait %v", wait)
	}
	for i := range maxLocalKeys + 10 {
		local.take("flood "+strconv.Itoa(i), 60, now)
	}
	if len(local.rest) > maxLocalKeys {
		t.Errorf("%d keys", len(local.rest))
	}
	later := now.Add(3 * time.Minute)
	if local.take("new", 60, later); len(local.rest) != 1 {
		t.Errorf("%d keys after all others came to rest", len(local.rest))
	}
}

// brokenRate does not answer. What is lost with it is shown against a real Redis in endpoint/token.
type brokenRate struct{ asked atomic.Int64 }

func (b *brokenRate) Take(context.Context, string, int, int) (time.Duration, error) {
	b.asked.Add(1)
	return 0, errors.New("no answer")
}

func TestF3WithoutTheSharedCountEachProcessCountsForItself(t *testing.T) {
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
		if wait := c.ForGrant(grant); wait != 0 { // it came to rest a little
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
			t.Errorf("asked %d times while it did not answer", shared.asked.Load())
		}
		time.Sleep(distrustAfterFail)
		synctest.Wait()
		if shared.asked.Load() != 2 || strings.Count(log.String(), "in this process alone") != 2 {
			t.Errorf(
				"asked %d times in all: it is to be asked again, each time with a line: %s",
				shared.asked.Load(),
				log.String(),
			)
		}
	})
}

// memory is a Rate that processes share, without a store between them: what happens between the processes is the same.
type memory struct {
	mu   sync.Mutex
	of   *localRate
	told map[string]int
}

func (m *memory) Take(_ context.Context, key string, perMinute, n int) (time.Duration, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told[key] += n
	for i := range n {
		if wait := m.of.take(key, perMinute, time.Now()); wait > 0 {
			return wait + time.Duration(n-i-1)*time.Minute/time.Duration(perMinute), nil
		}
	}
	return 0, nil
}

// A flood that is spread over ten processes is let through little more often than one process would let it.
func TestF3ProcessesHoldBackTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &memory{of: newLocalRate(), told: map[string]int{}}
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
			t.Errorf(
				"%d refusals were answered in full; one process answers %d, ten that know nothing of one another %d",
				answered,
				alone,
				10*alone,
			)
		}
		if all := shared.told["grant:"+grant.String()]; all != answered {
			t.Errorf("%d were answered, and %d told", answered, all)
		}
	})
}

// Whoever makes names up does not keep the count of a client under attack from being shared.
func TestTheBusiestAreToldFirst(t *testing.T) {
	shared := &memory{of: newLocalRate(), told: map[string]int{}}
	c := NewLimiter(shared, slog.New(slog.DiscardHandler), time.Now)
	for range 10 * maxPerShare {
		c.ForGrant(uuid.New())
	}
	busy := uuid.New()
	for range 3 {
		c.ForGrant(busy)
	}
	if err := c.send(t.Context()); err != nil || shared.told["grant:"+busy.String()] != 3 ||
		len(shared.told) != maxPerShare {
		t.Errorf(
			"%v: of %d keys told, the busiest %d times",
			err,
			len(shared.told),
			shared.told["grant:"+busy.String()],
		)
	}
}

func TestF4MadeUpClientsShareSlots(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	c := NewLimiter(&brokenRate{}, slog.New(slog.DiscardHandler), func() time.Time { return now })
	for range 200_000 {
		c.ForClient(uuid.NewString())
	}
	if len(c.local.rest) > 1<<16 || len(c.unsent.keys) > 1<<16 {
		t.Errorf("%d keys", len(c.local.rest))
	}
}
