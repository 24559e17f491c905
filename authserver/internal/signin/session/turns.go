package session

import (
	"cmp"
	"context"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/almonerhq/almoner/shared/contract/spelling"
)

const (
	atOnce      = 2 // concurrent hashes; each takes a core and 19 MiB
	maxWaiting  = 128
	mistyped    = 2 // wrong passwords that do not lower the priority
	longestWait = 3 * time.Second

	// BusyFor is when to try again after ErrBusy.
	BusyFor = 3 * time.Second

	// perKnownBrowser is how many checks an account has in the lane for its known browsers, within recentFor. Further
	// checks lose that priority, so that an attacker's own account does not open the lane to a flood.
	perKnownBrowser = 20
	recentFor       = 20 * time.Minute
)

// A Caller is the source of a password check, as far as it is known before the check.
type Caller struct {
	Email   string
	Address netip.Addr
	Known   bool // the browser has signed in to this account before
}

// A turnQueue decides which password is checked next if there are more than can be checked. One hash costs as much as a
// hundred other requests, so a flood of wrong passwords always fills this queue. Three rules protect the sign-ins of
// other users:
//
//   - Browsers that have signed in to the account before go first, and the others together use at most half of the
//     cores, so that a flood leaves time for other work.
//   - Among the others, those go first whose network and account had the fewest recent checks. A network
//     is the /24 of an IPv4 address and the /48 of an IPv6 address, which is what one customer may have;
//     wider networks count too, with less weight.
//   - Among equals the newest goes first. When all are served late, the callers that waited longest have
//     given up, and a flood mostly waits for itself.
//
// The last caller in a full queue, and a caller that has waited for longestWait, get ErrBusy. A turnQueue is safe for
// concurrent use.
type turnQueue struct {
	mu      sync.Mutex
	free    int
	unknown int     // checks that unknown browsers may still start
	waiting []*turn // in order of arrival
	arrived int     // turns that have waited, until now
	recent  *localCounter
}

type turn struct {
	keys  []candidate // nil for a known browser
	place int         // in the order of arrival
	ready chan bool   // receives one value: whether the turn was granted
}

// A candidate is a key whose events are counted. The first events do not count, because users mistype. Each bit of
// shift halves the weight of the others.
type candidate struct {
	key   string
	shift int
}

// newTurnQueue returns the queue of a process with this number of cores.
func newTurnQueue(cores int) *turnQueue {
	return &turnQueue{free: atOnce, unknown: min(max(cores/2, 1), atOnce), recent: newLocalCounter(time.Now)}
}

// enter waits for a turn, which leave ends. It returns ErrBusy.
func (t *turnQueue) enter(ctx context.Context, c Caller) (leave func(), err error) {
	mine, now := t.queue(c)
	leave = func() { t.leave(mine) }
	if now {
		return leave, nil
	}
	ctx, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	select {
	case granted := <-mine.ready:
		if granted {
			return leave, nil
		}
		return nil, ErrBusy
	case <-ctx.Done():
		if t.remove(mine) || !<-mine.ready {
			return nil, ErrBusy
		}
		return leave, nil // the turn was granted at the same moment
	}
}

// queue adds the caller, and reports whether it has a turn at once.
func (t *turnQueue) queue(c Caller) (mine *turn, now bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine = &turn{ready: make(chan bool, 1)}
	lane := "known:" + digest(spelling.Key(c.Email))
	if !c.Known || t.recent.number(lane, recentFor) >= perKnownBrowser {
		mine.keys = keysOf(c)
	} else {
		t.recent.add(lane, recentFor)
	}
	if t.admits(mine) {
		t.start(mine)
		return mine, true
	}
	t.arrived++
	mine.place = t.arrived
	if t.waiting = append(t.waiting, mine); len(t.waiting) > maxWaiting {
		last := slices.MaxFunc(t.waiting, t.compare)
		t.take(last)
		last.ready <- false
	}
	return mine, false
}

// admits reports whether the turn can start.
func (t *turnQueue) admits(one *turn) bool { return t.free > 0 && (one.keys == nil || t.unknown > 0) }

func (t *turnQueue) start(one *turn) {
	t.free--
	if one.keys != nil {
		t.unknown--
	}
}

// leave ends a turn and grants the next.
func (t *turnQueue) leave(ended *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	if ended.keys != nil {
		t.unknown++
	}
	if len(t.waiting) == 0 {
		return
	}
	// Known browsers rank first. So if the first is not admitted, no other is.
	if next := slices.MinFunc(t.waiting, t.compare); t.admits(next) {
		t.take(next)
		t.start(next)
		next.ready <- true
	}
}

// wrong counts a wrong password against the caller's network and account.
func (t *turnQueue) wrong(c Caller) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keysOf(c) {
		t.recent.add(key.key, recentFor)
	}
}

// remove takes a turn out of the queue, and reports whether it was still waiting.
func (t *turnQueue) remove(mine *turn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	waits := slices.Contains(t.waiting, mine)
	t.take(mine)
	return waits
}

func (t *turnQueue) take(one *turn) {
	t.waiting = slices.DeleteFunc(t.waiting, func(other *turn) bool { return other == one })
}

// compare orders turns by rank; among equals, the newest is the first.
func (t *turnQueue) compare(a, b *turn) int {
	return cmp.Or(cmp.Compare(t.rank(a), t.rank(b)), cmp.Compare(b.place, a.place))
}

// rank is lower for turns that go first. Counts of the same order of magnitude are equal.
func (t *turnQueue) rank(one *turn) int {
	if one.keys == nil {
		return -1
	}
	rank := 0
	for _, key := range one.keys {
		rank = max(rank, bits.Len(uint(max(0, t.recent.number(key.key, recentFor)-mistyped)>>key.shift)))
	}
	return rank
}

// keysOf returns the keys by which a caller's wrong passwords are counted: the account, and the networks of the
// address.
func keysOf(c Caller) []candidate {
	keys := []candidate{{key: "account:" + digest(spelling.Key(c.Email))}}
	address := c.Address.Unmap().WithZone("")
	lengths := [...]int{24, 16, 8}
	if address.Is6() {
		lengths = [...]int{48, 40, 32}
	}
	for i, length := range lengths {
		if network, err := address.Prefix(length); err == nil {
			keys = append(keys, candidate{"network:" + network.String(), 4 * i})
		}
	}
	return keys
}

// maxLocalKeys limits the memory of a localCounter. Beyond it, the key that was used least recently is dropped: a flood
// from many addresses costs accuracy, not memory. The events of a key are limited by its limit or, of wrong passwords,
// by how many can be hashed within the window: 60,000 in 20 minutes at 50 a second.
const maxLocalKeys = 40_000

// A localCounter counts events within a sliding window. It is safe for concurrent use.
type localCounter struct {
	now  func() time.Time
	mu   sync.Mutex
	seen *simplelru.LRU[string, []time.Time] // oldest first
}

func newLocalCounter(now func() time.Time) *localCounter {
	seen, _ := simplelru.NewLRU[string, []time.Time](maxLocalKeys, nil) // fails only if the size is not positive
	return &localCounter{now: now, seen: seen}
}

// count returns how long key must wait until it is below limit. With add, it counts one more event unless key must
// wait.
func (l *localCounter) count(key string, limit int, window time.Duration, add bool) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	events := l.within(key, window, now)
	if len(events) >= limit {
		return events[0].Add(window).Sub(now)
	}
	if add {
		l.seen.Add(key, append(events, now))
	}
	return 0
}

// add counts an event.
func (l *localCounter) add(key string, window time.Duration) { l.count(key, math.MaxInt, window, true) }

// number returns how many events were counted within the window.
func (l *localCounter) number(key string, window time.Duration) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.within(key, window, l.now()))
}

// within returns the events of a key within the window, and forgets earlier ones.
func (l *localCounter) within(key string, window time.Duration, now time.Time) []time.Time {
	events, _ := l.seen.Get(key)
	past := 0
	for past < len(events) && now.Sub(events[past]) >= window {
		past++
	}
	if past == len(events) {
		l.seen.Remove(key)
	} else if past > 0 {
		l.seen.Add(key, events[past:])
	}
	return events[past:]
}
