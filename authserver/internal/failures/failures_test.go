package failures

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
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
type brokenRate struct{ asked int }

func (b *brokenRate) Take(context.Context, string, int) (time.Duration, error) {
	b.asked++
	return 0, errors.New("no answer")
}

func TestF3WithoutTheSharedCountEachProcessCountsForItself(t *testing.T) {
	var log bytes.Buffer
	now, shared := time.Unix(1_000_000, 0), &brokenRate{}
	c := NewCounter(shared, slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now })
	grant := uuid.New()
	for i := range PerGrant {
		if wait := c.OfGrant(t.Context(), grant); wait != 0 {
			t.Fatalf("failure %d waits %v", i, wait)
		}
	}
	if wait := c.OfGrant(t.Context(), grant); wait <= 0 || wait > time.Minute {
		t.Errorf("beyond the limit: wait %v", wait)
	}
	if shared.asked != 1 || strings.Count(log.String(), "in this process alone") != 1 {
		t.Errorf("asked %d times while it did not answer: %s", shared.asked, log.String())
	}
	now = now.Add(distrustAfterFail)
	if c.OfClient(t.Context(), "x"); shared.asked != 2 {
		t.Error("it is never asked again")
	}
}

func TestF4MadeUpClientsShareSlots(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	c := NewCounter(&brokenRate{}, slog.New(slog.DiscardHandler), func() time.Time { return now })
	for range 200_000 {
		c.OfClient(t.Context(), uuid.NewString())
	}
	if len(c.local.rest) > 1<<16 {
		t.Errorf("%d keys", len(c.local.rest))
	}
}
