package engine

import (
	"sync"
	"time"

	"github.com/google/uuid"
)

// maxRecent is how many refusals are remembered.
const maxRecent = 8192

// A refusal is of a grant, for a reason.
type refusal struct {
	grant uuid.UUID
	why   string
}

// recentCache remembers what the audit log has of this clock hour, where a refusal is noted once (migration 50). What
// it forgets, because there is too much of it or the process starts anew, is written again and changes nothing there.
type recentCache struct {
	now func() time.Time

	mu   sync.Mutex
	hour time.Time
	seen map[refusal]struct{}
}

func (n *recentCache) has(r refusal) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.turn()
	_, seen := n.seen[r]
	return seen
}

func (n *recentCache) add(r refusal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.turn()
	n.seen[r] = struct{}{}
}

// turn forgets the hour that is over, and everything when there is no more room.
func (n *recentCache) turn() {
	if hour := n.now().Truncate(time.Hour); !hour.Equal(n.hour) || len(n.seen) >= maxRecent {
		n.hour, n.seen = hour, map[refusal]struct{}{}
	}
}
