package session

import (
	"strconv"
	"testing"
	"time"
)

func TestLocalTally_ExpiresAndIsBounded(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	tally := newLocalTally(func() time.Time { return now })
	for i := range 3 {
		if wait := tally.count("k", 3, time.Minute, true); wait != 0 {
			t.Fatalf("event %d waits %v", i, wait)
		}
		now = now.Add(time.Second)
	}
	if wait := tally.count("k", 3, time.Minute, true); wait != 57*time.Second {
		t.Errorf("full: wait %v", wait)
	}
	now = now.Add(57 * time.Second)
	if wait := tally.count("k", 3, time.Minute, false); wait != 0 {
		t.Errorf("after the first event is forgotten: wait %v", wait)
	}
	for i := range maxLocalKeys + 1000 {
		now = now.Add(time.Microsecond)
		tally.count("flood "+strconv.Itoa(i), 3, time.Minute, true)
	}
	if len(tally.seen) > maxLocalKeys {
		t.Errorf("%d keys", len(tally.seen))
	}
	last := "flood " + strconv.Itoa(maxLocalKeys+999)
	if len(tally.seen[last]) != 1 {
		t.Error("the latest key was forgotten")
	}
	now = now.Add(time.Hour)
	if tally.count(last, 3, time.Minute, false); len(tally.seen[last]) != 0 {
		t.Error("a key without events is still stored")
	}
}
