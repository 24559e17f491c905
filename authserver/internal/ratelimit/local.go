package ratelimit

import (
	"sync"
	"time"
)

// maxLocalKeys bounds the memory of a localRate: when it is full, new keys are not counted.
const maxLocalKeys = 100_000

// A localRate stores one time per key (the generic cell rate algorithm): when the key would be at rest if its
// events had come evenly.
type localRate struct {
	mu   sync.Mutex
	rest map[string]time.Time
}

func newLocalRate() *localRate { return &localRate{rest: map[string]time.Time{}} }

func (l *localRate) take(key string, perMinute int, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest, known := l.rest[key]
	if !known && len(l.rest) >= maxLocalKeys && !l.makeRoom(now) {
		return 0
	}
	if rest.Before(now) {
		rest = now
	}
	rest = rest.Add(time.Minute / time.Duration(perMinute))
	if wait := rest.Sub(now) - time.Minute; wait > 0 {
		return wait
	}
	l.rest[key] = rest
	return 0
}

// hold blocks a key for this long, up to a minute.
func (l *localRate) hold(key string, perMinute int, wait time.Duration, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := now.Add(min(wait, time.Minute) + time.Minute - time.Minute/time.Duration(perMinute))
	if known, there := l.rest[key]; there && rest.After(known) {
		l.rest[key] = rest
	}
}

// makeRoom removes every key that is at rest.
func (l *localRate) makeRoom(now time.Time) bool {
	for key, rest := range l.rest {
		if !rest.After(now) {
			delete(l.rest, key)
		}
	}
	return len(l.rest) < maxLocalKeys
}
