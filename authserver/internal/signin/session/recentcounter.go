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

func (c *recentCounter) add(key string) {
	c.turnOver()
	c.current[key]++
}

func (c *recentCounter) count(key string) int {
	c.turnOver()
	return c.current[key] + c.past[key]
}

func (c *recentCounter) turnOver() {
	now := c.now()
	age := now.Sub(c.began)
	if age < recentFor && len(c.current) < maxRemembered {
		return
	}
	c.past = c.current
	if age >= 2*recentFor {
		c.past = nil
	}
	c.current, c.began = map[string]int{}, now
}
