package engine

import (
	"sync"
	"time"

	"github.com/google/uuid"
)

// maxRecent is the maximum number of remembered refusals.
const maxRecent = 8192

// A refusal is the refusal of a grant's request for a reason.
type refusal struct {
	grant uuid.UUID
	why   string
}

// recentCache remembers the refusals recorded in this clock hour; the audit log stores each once an hour (migration
// 50). What it forgets, because it is full or the process restarts, is written again and changes nothing there.
type recentCache struct {
	now func() time.Time

	mu   sync.Mutex
	hour time.Time
	seen map[refusal]struct{}
}

func (c *recentCache) has(r refusal) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn()
	_, seen := c.seen[r]
	return seen
}

func (c *recentCache) add(r refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn()
	c.seen[r] = struct{}{}
}

// turn clears the cache at the start of an hour and when it is full.
func (c *recentCache) turn() {
	if hour := c.now().Truncate(time.Hour); !hour.Equal(c.hour) || len(c.seen) >= maxRecent {
		c.hour, c.seen = hour, map[refusal]struct{}{}
	}
}
