package session

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// maxLocalKeys limits the memory of a localCounter. Beyond it, the key that was counted least recently is dropped: a
// flood from many addresses costs accuracy, not memory.
const maxLocalKeys = 20000

// A localCounter counts events within a sliding window. It is safe for concurrent use.
type localCounter struct {
	now  func() time.Time
	mu   sync.Mutex
	seen *simplelru.LRU[string, []time.Time] // oldest first
}

func newLocalCounter(now func() time.Time) *localCounter {
	seen, _ := simplelru.NewLRU[string, []time.Time](maxLocalKeys, nil) // fails only if the size is not positive
	return &localCounter{now: now, seen: seen}
}

func (l *localCounter) count(key string, limit int, window time.Duration, add bool) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	events, _ := l.seen.Get(key)
	for len(events) > 0 && now.Sub(events[0]) >= window {
		events = events[1:]
	}
	if len(events) >= limit {
		return events[0].Add(window).Sub(now)
	}
	if add {
		l.seen.Add(key, append(events, now))
	} else if len(events) == 0 {
		l.seen.Remove(key)
	}
	return 0
}
