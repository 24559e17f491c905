package session

import (
	"sync"
	"time"
)

// maxLocalKeys limits the memory of a localTally. Beyond it, the key with the oldest first event is dropped: a flood
// from many addresses costs accuracy, not memory.
const maxLocalKeys = 20000

type localTally struct {
	now  func() time.Time
	mu   sync.Mutex
	seen map[string][]time.Time // oldest first
}

func newLocalTally(now func() time.Time) *localTally {
	return &localTally{now: now, seen: map[string][]time.Time{}}
}

func (t *localTally) count(key string, limit int, window time.Duration, add bool) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	events := t.seen[key]
	for len(events) > 0 && now.Sub(events[0]) >= window {
		events = events[1:]
	}
	if len(events) >= limit {
		t.seen[key] = events
		return events[0].Add(window).Sub(now)
	}
	if add {
		events = append(events, now)
	}
	if len(events) == 0 {
		delete(t.seen, key)
		return 0
	}
	if _, known := t.seen[key]; !known && len(t.seen) >= maxLocalKeys {
		t.makeRoom(now, window)
	}
	t.seen[key] = events
	return 0
}

// makeRoom deletes expired keys, or else the key whose first event is the oldest.
func (t *localTally) makeRoom(now time.Time, window time.Duration) {
	oldest, since := "", now
	for key, events := range t.seen {
		if now.Sub(events[len(events)-1]) >= window {
			delete(t.seen, key)
		} else if !events[0].After(since) {
			oldest, since = key, events[0]
		}
	}
	if len(t.seen) >= maxLocalKeys {
		delete(t.seen, oldest)
	}
}
