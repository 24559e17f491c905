package session

import "time"

const (
	recentFor    = 10 * time.Minute
	mostRemember = 20_000 // keys per period
)

// lately counts events by key, for one to two periods of recentFor. A flood of keys ends a period early: its memory is bounded, and what is
// forgotten first is what was counted first. The caller locks.
type lately struct {
	now           func() time.Time
	began         time.Time
	current, past map[string]int
}

func newLately(now func() time.Time) *lately {
	return &lately{now: now, began: now(), current: map[string]int{}}
}

func (l *lately) add(key string) {
	l.turnOver()
	l.current[key]++
}

func (l *lately) count(key string) int {
	l.turnOver()
	return l.current[key] + l.past[key]
}

func (l *lately) turnOver() {
	now := l.now()
	age := now.Sub(l.began)
	if age < recentFor && len(l.current) < mostRemember {
		return
	}
	l.past = l.current
	if age >= 2*recentFor {
		l.past = nil
	}
	l.current, l.began = map[string]int{}, now
}
