package session

import "time"

const (
	recentFor     = 10 * time.Minute
	maxRemembered = 20_000 // keys per period
)

// recentCounter counts events by key, for one to two periods of recentFor. A flood of keys ends a period early, so
// memory is limited and the oldest counts are dropped first. The caller locks.
type recentCounter struct {
	now           func() time.Time
	began         time.Time
	current, past map[string]int
}

func newRecentCounter(now func() time.Time) *recentCounter {
	return &recentCounter{now: now, began: now(), current: map[string]int{}}
}

func (r *recentCounter) add(key string) {
	r.turnOver()
	r.current[key]++
}

func (r *recentCounter) count(key string) int {
	r.turnOver()
	return r.current[key] + r.past[key]
}

func (r *recentCounter) turnOver() {
	now := r.now()
	age := now.Sub(r.began)
	if age < recentFor && len(r.current) < maxRemembered {
		return
	}
	r.past = r.current
	if age >= 2*recentFor {
		r.past = nil
	}
	r.current, r.began = map[string]int{}, now
}
