package redis

import (
	"sync"
	"time"
)

// mostKeys bounds the memory that strangers can make this process use. Beyond it all begin anew.
const mostKeys = 20_000

// localLimits counts in this process.
type localLimits struct {
	now func() time.Time

	mu     sync.Mutex
	counts map[string]tally
}

// A tally is how many events there were since the first.
type tally struct {
	first time.Time
	n     int
}

func newLocalLimits(now func() time.Time) *localLimits {
	return &localLimits{now: now, counts: map[string]tally{}}
}

func (l *localLimits) count(key string, most int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	t, known := l.counts[key]
	if !known && len(l.counts) >= mostKeys {
		l.forget(now)
	}
	if !known || now.Sub(t.first) >= window {
		t = tally{first: now}
	}
	if t.n >= most {
		return t.first.Add(window).Sub(now)
	}
	t.n++
	l.counts[key] = t
	return 0
}

// forget removes the tallies whose minute is over, and all of them if that makes no room.
func (l *localLimits) forget(now time.Time) {
	for key, t := range l.counts {
		if now.Sub(t.first) >= window {
			delete(l.counts, key)
		}
	}
	if len(l.counts) >= mostKeys {
		clear(l.counts)
	}
}
