package session

import (
	"strconv"
	"testing"
	"time"
)

func TestLocalCounter_ExpiresAndIsBounded(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	counter := newLocalCounter(func() time.Time { return now })
	for i := range 3 {
		if wait := counter.count("k", 3, time.Minute, true); wait != 0 {
			t.Fatalf("event %d waits %v", i, wait)
		}
		now = now.Add(time.Second)
	}
	if wait := counter.count("k", 3, time.Minute, true); wait != 57*time.Second {
		t.Errorf("full: wait %v", wait)
	}
	now = now.Add(57 * time.Second)
	if wait := counter.count("k", 3, time.Minute, false); wait != 0 {
		t.Errorf("after the first event is forgotten: wait %v", wait)
	}
	counter.count("k", 3, time.Minute, true)
	if events, _ := counter.seen.Peek("k"); len(events) != 3 {
		t.Errorf("%d events, want the last two and one more", len(events))
	}
	for i := range maxLocalKeys + 10 {
		now = now.Add(time.Microsecond)
		counter.count("flood "+strconv.Itoa(i), 3, time.Minute, true)
	}
	last := "flood " + strconv.Itoa(maxLocalKeys+9)
	if events, _ := counter.seen.Peek(last); len(events) != 1 || counter.seen.Len() != maxLocalKeys {
		t.Errorf("%d events of the latest key, %d keys", len(events), counter.seen.Len())
	}
	now = now.Add(time.Hour)
	if counter.count(last, 3, time.Minute, false); counter.seen.Contains(last) {
		t.Error("a key without events is still stored")
	}
}

// The counter of a limited address is not dropped while other addresses are counted.
func TestLocalCounter_FloodDoesNotFreeKeyInUse(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	counter := newLocalCounter(func() time.Time { return now })
	counter.count("k", 1, time.Hour, true)
	for i := range maxLocalKeys + 2000 {
		if counter.count("flood "+strconv.Itoa(i), 3, time.Hour, true); i%1000 != 0 {
			continue
		}
		if wait := counter.count("k", 1, time.Hour, false); wait != time.Hour {
			t.Fatalf("after %d other keys: wait %v", i, wait)
		}
	}
}
