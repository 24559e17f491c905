package redis

import (
	"sync"
	"time"
)

// mostKeys bounds the memory that anonymous clients can make this process use. Beyond it, all counts are reset.
const mostKeys = 20_000

// localLimits counts in this process.
type localLimits struct {
	now func() time.Time

	mu     sync.Mutex
	events map[string][]time.Time // of the last minute, oldest first
}

func newLocalLimits(now func() time.Time) *localLimits {
	return &localLimits{now: now, events: map[string][]time.Time{}}
}

func (l *localLimits) count(key string, most int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	events, known := l.events[key]
	if !known && len(l.events) >= mostKeys {
		l.forget(now)
	}
	for len(events) > 0 && now.Sub(events[0]) >= window {
		events = events[1:]
	}
	if len(events) >= most {
		return events[0].Add(window).Sub(now)
	}
	l.events[key] = append(events, now)
	return 0
}

// forget removes the keys without events in the last minute, and all keys if that makes no room.
func (l *localLimits) forget(now time.Time) {
	for key, events := range l.events {
		if now.Sub(events[len(events)-1]) >= window {
			delete(l.events, key)
		}
	}
	if len(l.events) >= mostKeys {
		clear(l.events)
	}
}
