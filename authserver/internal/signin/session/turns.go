package session

import (
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
	atOnce      = 2   // concurrent hashes; each takes a core and 19 MiB
	maxWaiting  = 256 // more than two seconds of a flood of 120 a second
	longestWait = 3 * time.Second

	// BusyFor is when to try again after ErrBusy.
	BusyFor = time.Second

	// perKnownBrowser is how many checks an account has in the lane for its known browsers, and one more each
	// forgetEvery. An attacker's own account does not open the lane to a flood.
	perKnownBrowser = 20
	forgetEvery     = time.Minute // one attempt of a counter
	longestMemory   = time.Hour   // until the highest counter is 0 again
)

// A Caller is the source of a password check, as far as it is known before the check.
type Caller struct {
	Email   string
	Address netip.Addr
	Known   bool // the browser has signed in to this account before
}

// A turnQueue decides which password is checked next if there are more than can be checked. One hash costs as much as a
// hundred other requests, so a flood of wrong passwords always fills this queue. Four rules protect other sign-ins:
//
//   - Browsers that have signed in to the account before go first, and the others together use at most half of the
//     cores, so that a flood leaves time for other work.
//   - Of the others, the one with the fewest attempts by one measure goes first: by its address, its network, one of
//     two wider networks, or its account. The measure is the one by which the fewest callers have so few, so that one
//     in which a flood cannot hide is enough. Every sixth turn is for the last to arrive, for some have many by each.
//   - The attempts are those of the last time that were not a right password: those that wait, those that were wrong
//     and those that were refused. A flood shows with its second attempt from an address, long before most of its
//     passwords could be checked.
//   - Among equals the newest goes first. When all are served late, the callers that waited longest have
//     given up, and a flood mostly waits for itself.
//
// In a full queue, the caller gets ErrBusy that has few attempts by no measure, and so does a caller that has waited
// for longestWait. If it tries the same account again from the same address, the new attempt takes over the count of
// the refused one, so that the page that waits does not lower the priority of its own user. A refused attempt does not
// give its count back, because a flood is mostly refused: it could try other accounts as if it had just begun. It
// gains nothing by taking over, since each of its wrong passwords counts. A turnQueue is safe for concurrent use.
type turnQueue struct {
	mu       sync.Mutex
	free     int
	unknown  int                                                   // checks that unknown browsers may still start
	waiting  []*turn                                               // in order of arrival
	granted  int                                                   // to unknown browsers that have waited, until now
	counters [measures + 2]*simplelru.LRU[string, *attemptCounter] // each its own: a flood of new addresses fills one
}

// Counters that are no measure: of checks of known browsers by account, which others do not touch, and of refused
// attempts by address and account.
const lanes, refusals = measures, measures + 1

type turn struct {
	counters []*attemptCounter // by measure; nil for a known browser
	refused  func()            // counts its refusal
	ready    chan bool         // receives one value: whether the turn was granted
}

// newTurnQueue returns the queue of a process with this number of cores.
func newTurnQueue(cores int) *turnQueue {
	t := &turnQueue{free: atOnce, unknown: min(max(cores/2, 1), atOnce)}
	for i := range t.counters {
		t.counters[i] = newLRU[*attemptCounter]()
	}
	return t
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
	defer context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.refuse(mine)
	})()
	if <-mine.ready {
		return leave, nil
	}
	return nil, ErrBusy
}

// queue adds the caller, and reports whether it has a turn at once.
func (t *turnQueue) queue(c Caller) (mine *turn, now bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine = t.newTurn(c)
	if t.admits(mine) {
		t.start(mine)
		return mine, true
	}
	if t.waiting = append(t.waiting, mine); len(t.waiting) > maxWaiting {
		t.refuse(t.leastPreferred())
	}
	return mine, false
}

// newTurn counts an attempt, and returns its turn.
func (t *turnQueue) newTurn(c Caller) *turn {
	mine, account := &turn{ready: make(chan bool, 1)}, spelling.Key(c.Email)
	if c.Known {
		if lane := t.counterOf(lanes, account); lane.attempts(time.Now()) < perKnownBrowser {
			lane.add(1)
			mine.refused = func() { lane.add(-1) } // it has used no check
			return mine
		}
	}
	mine.counters = t.countersOf(c)
	before := t.counterOf(refusals, c.Address.String()+" "+account)
	mine.refused = func() { before.add(1) }
	if before.attempts(time.Now()) > 0 {
		before.add(-1)
	} else {
		mine.count(1)
	}
	return mine
}

// admits reports whether the turn can start.
func (t *turnQueue) admits(one *turn) bool {
	return t.free > 0 && (one.counters == nil || t.unknown > 0)
}

func (t *turnQueue) start(one *turn) {
	t.free--
	if one.counters != nil {
		t.unknown--
	}
}

// leave ends a turn and grants the next.
func (t *turnQueue) leave(ended *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	if ended.counters != nil {
		t.unknown++
		ended.count(-1)
	}
	if len(t.waiting) == 0 {
		return
	}
	// Known browsers rank first. So if the first is not admitted, no other is.
	next := t.next()
	if t.admits(next) {
		t.waiting = slices.DeleteFunc(t.waiting, func(one *turn) bool { return one == next })
		t.start(next)
		if next.counters != nil {
			t.granted++
		}
		next.ready <- true
	}
}

// wrong counts a wrong password against the caller's network and account.
func (t *turnQueue) wrong(c Caller) {
	t.mu.Lock()
	defer t.mu.Unlock()
	(&turn{counters: t.countersOf(c)}).count(1)
}

// refuse ends a turn, unless it no longer waits.
func (t *turnQueue) refuse(one *turn) {
	if at := slices.Index(t.waiting, one); at >= 0 {
		t.waiting = slices.Delete(t.waiting, at, at+1)
		one.refused()
		one.ready <- false
	}
}

// next returns the turn that goes first.
func (t *turnQueue) next() *turn {
	now := time.Now()
	first, fewest := t.fewestAttempts(measures, now)
	for i := range measures {
		if t.granted%(measures+1) == measures {
			break
		}
		if one, count := t.fewestAttempts((t.granted+i)%measures, now); count < fewest {
			first, fewest = one, count
		}
	}
	return first
}

// fewestAttempts returns the newest of the turns with the fewest attempts by a measure, and how many these are.
func (t *turnQueue) fewestAttempts(measure int, now time.Time) (newest *turn, count int) {
	lowest := math.MaxInt
	for _, one := range t.waiting {
		switch rank := one.rank(measure, now); {
		case rank < lowest:
			newest, count, lowest = one, 1, rank
		case rank == lowest:
			newest, count = one, count+1
		}
	}
	return newest, count
}

// leastPreferred returns the turn that most others precede even by its best measure. Among equals it is the oldest.
func (t *turnQueue) leastPreferred() *turn {
	now, fewest, own := time.Now(), make([]int, len(t.waiting)), make([]int, len(t.waiting))
	for measure := range measures {
		var upTo [ranks]int // turns of at most this rank
		for i, one := range t.waiting {
			own[i] = one.rank(measure, now)
			upTo[own[i]]++
		}
		for rank := 1; rank < ranks; rank++ {
			upTo[rank] += upTo[rank-1]
		}
		for i, rank := range own {
			if measure == 0 || upTo[rank] < fewest[i] {
				fewest[i] = upTo[rank]
			}
		}
	}
	return t.waiting[slices.Index(fewest, slices.Max(fewest))]
}

// ranks is the number of ranks.
const ranks = 8

// rank is lower for turns that go first by a measure: 0 for a known browser. Counts of the same order of magnitude are
// equal.
func (one *turn) rank(measure int, now time.Time) int {
	switch {
	case one.counters == nil:
		return 0
	case measure == measures:
		return 1
	}
	return 1 + bits.Len(uint(one.counters[measure].attempts(now)))
}

func (one *turn) count(attempts int) {
	for _, c := range one.counters {
		c.add(attempts)
	}
}

// measures is the number of counters of a caller.
const measures = 5

// countersOf returns the counters of a caller's address, networks and account. An address of IPv6 is a /64, as one
// person has it, and its networks are a customer's /48, a /40 and a provider's /32.
func (t *turnQueue) countersOf(c Caller) (all []*attemptCounter) {
	address := c.Address.Unmap().WithZone("")
	lengths := [measures - 1]int{32, 24, 16, 8}
	if address.Is6() {
		lengths = [...]int{64, 48, 40, 32}
	}
	for measure, length := range lengths {
		network, _ := address.Prefix(length) // without an address, the zero Prefix
		all = append(all, t.counterOf(measure, network.String()))
	}
	return append(all, t.counterOf(measures-1, spelling.Key(c.Email)))
}

func (t *turnQueue) counterOf(measure int, key string) *attemptCounter {
	key = digest(key)
	c, known := t.counters[measure].Get(key)
	if !known {
		c = &attemptCounter{}
		t.counters[measure].Add(key, c)
	}
	return c
}

// An attemptCounter is a number of attempts, of which one is forgotten each forgetEvery.
type attemptCounter struct{ until time.Time }

// attempts returns the number, rounded.
func (c *attemptCounter) attempts(now time.Time) int {
	return int(max(0, c.until.Sub(now)+forgetEvery/2) / forgetEvery)
}

func (c *attemptCounter) add(attempts int) {
	wait := max(0, time.Until(c.until)) + time.Duration(attempts)*forgetEvery
	c.until = time.Now().Add(min(wait, longestMemory))
}

// maxLocalKeys limits the memory of counters. Beyond it, the key that was used least recently is dropped: a flood
// from many addresses costs accuracy, not memory. The events of a key are limited by its limit.
const maxLocalKeys = 40_000

// A localCounter counts events within a sliding window. It is safe for concurrent use.
type localCounter struct {
	now  func() time.Time
	mu   sync.Mutex
	seen *simplelru.LRU[string, []time.Time] // oldest first
}

func newLocalCounter(now func() time.Time) *localCounter {
	return &localCounter{now: now, seen: newLRU[[]time.Time]()}
}

func newLRU[V any]() *simplelru.LRU[string, V] {
	lru, _ := simplelru.NewLRU[string, V](maxLocalKeys, nil) // fails only if the size is not positive
	return lru
}

// count returns how long key must wait until it is below limit. With add, it counts one more event unless key must
// wait.
func (l *localCounter) count(key string, limit int, window time.Duration, add bool) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	events, _ := l.seen.Get(key)
	events = slices.DeleteFunc(events, func(at time.Time) bool { return now.Sub(at) >= window })
	if len(events) >= limit {
		wait = events[0].Add(window).Sub(now)
	} else if add {
		events = append(events, now)
	}
	if len(events) == 0 {
		l.seen.Remove(key)
	} else {
		l.seen.Add(key, events)
	}
	return wait
}
