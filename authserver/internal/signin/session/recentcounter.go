package session

import "time"

const (
	recentFor     = 10 * time.Minute
	maxRemembered = 20_000 // keys per period
)

// recentCounter counts events by key, for one to two periods of recentFor. A flood of keys ends a period early: its
// memory is bounded, and what is forgotten first is what was counted first. The caller locks.
type recentCounter struct {
	now           func() time.Time
	began         time.Time
	current, past map[string]int
}

func newRecentCounter(now func() time.Time) *recentCounter {
	return &recentCounter{now: now, began: now(), current: map[string]int{}}
}

func (l *recentCounter) add(key string) {
	l.turnOver()
	l.current[key]++
}

func (l *recentCounter) count(key string) int {
	l.turnOver()
	return l.current[key] + l.past[key]
}

func (l *recentCounter) turnOver() {
	now := l.now()
	age := now.Sub(l.began)
	if age < recentFor && len(l.current) < maxRemembered {
		return
	}
	l.past = l.current
	if age >= 2*recentFor {
		l.past = nil
	}
	l.current, l.began = map[string]int{}, now
}
