package redis

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// mostKeys bounds the memory that anonymous clients can make this process use. Beyond it, the key that was counted
// least recently is forgotten.
const mostKeys = 20_000

// localLimits counts in this process.
type localLimits struct {
	now func() time.Time

	mu     sync.Mutex
	events *simplelru.LRU[string, []time.Time] // of the last minute, oldest first
}

func newLocalLimits(now func() time.Time) *localLimits {
	events, _ := simplelru.NewLRU[string, []time.Time](mostKeys, nil) // fails only for a size below 1
	return &localLimits{now: now, events: events}
}

func (l *localLimits) count(key string, most int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	events, _ := l.events.Get(key)
	for len(events) > 0 && now.Sub(events[0]) >= window {
		events = events[1:]
	}
	if len(events) >= most {
		return events[0].Add(window).Sub(now)
	}
	l.events.Add(key, append(events, now))
	return 0
}
