package redis

import (
	"strconv"
	"testing"
	"time"
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
