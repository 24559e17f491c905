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
	// forgottenIn. Further checks lose that priority, so that an attacker's own account does not open the lane to a
	// flood.
	perKnownBrowser = 20
	forgottenIn     = time.Minute // one attempt of a noise
	loudest         = time.Hour   // until the loudest noise is forgotten
)

// A Caller is the source of a password check, as far as it is known before the check.
type Caller struct {
	Email   string
	Address netip.Addr
	Known   bool // the browser has signed in to this account before
}

// A turnQueue decides which password is checked next if there are more than can be checked. One hash costs as much as a
// hundred other requests, so a flood of wrong passwords always fills this queue. Four rules protect the sign-ins of
// other users:
//
//   - Browsers that have signed in to the account before go first, and the others together use at most half of the
//     cores, so that a flood leaves time for other work.
//   - Of the others, the quietest by one measure goes first: by its address, its network, one of two wider networks,
//     or its account. The measure is the one by which the fewest are the quietest, so that one in which a flood cannot
//     hide is enough. Every sixth turn is for whoever came last, because some have no quiet measure.
//   - Noise is the number of recent attempts that were not a right password: those that wait, those that were wrong and
//     those that were given up. A flood shows with its second attempt from an address, long before most of its
//     passwords could be checked.
//   - Among equals the newest goes first. When all are served late, the callers that waited longest have
//     given up, and a flood mostly waits for itself.
//
// In a full queue, the caller gets ErrBusy that is among the quietest by no measure, and so does a caller that has
// waited for longestWait. A turnQueue is safe for concurrent use.
type turnQueue struct {
	mu      sync.Mutex
	free    int
	unknown int     // checks that unknown browsers may still start
	waiting []*turn // in order of arrival
	granted int     // to unknown browsers that have waited, until now
	noise   *simplelru.LRU[string, *noise]
}

type turn struct {
	noises []*noise  // by measure; nil for a known browser
	ready  chan bool // receives one value: whether the turn was granted
}

// newTurnQueue returns the queue of a process with this number of cores.
func newTurnQueue(cores int) *turnQueue {
	seen, _ := simplelru.NewLRU[string, *noise](maxLocalKeys, nil) // fails only if the size is not positive
	return &turnQueue{free: atOnce, unknown: min(max(cores/2, 1), atOnce), noise: seen}
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
	lane := t.noiseOf("known:" + spelling.Key(c.Email))
	if !c.Known || lane.attempts() >= perKnownBrowser {
		mine.noises = t.noisesOf(c)
		mine.count(1)
	} else {
		lane.add(1)
	}
	if t.admits(mine) {
		t.start(mine)
		return mine, true
	}
	if t.waiting = append(t.waiting, mine); len(t.waiting) > maxWaiting {
		last := t.last()
		t.take(last)
		last.ready <- false
	}
	return mine, false
}

// admits reports whether the turn can start.
func (t *turnQueue) admits(one *turn) bool { return t.free > 0 && (one.noises == nil || t.unknown > 0) }

func (t *turnQueue) start(one *turn) {
	t.free--
	if one.noises != nil {
		t.unknown--
	}
}

// leave ends a turn and grants the next.
func (t *turnQueue) leave(ended *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	if ended.noises != nil {
		t.unknown++
		ended.count(-1)
	}
	if len(t.waiting) == 0 {
		return
	}
	// Known browsers rank first. So if the first is not admitted, no other is.
	next := t.next()
	if t.admits(next) {
		t.take(next)
		t.start(next)
		if next.noises != nil {
			t.granted++
		}
		next.ready <- true
	}
}

// wrong counts a wrong password against the caller's network and account.
func (t *turnQueue) wrong(c Caller) {
	t.mu.Lock()
	defer t.mu.Unlock()
	(&turn{noises: t.noisesOf(c)}).count(1)
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

// next returns the turn that goes first.
func (t *turnQueue) next() *turn {
	first, fewest := t.quietest(measures)
	for i := range measures {
		if t.granted%(measures+1) == measures {
			break
		}
		if one, count := t.quietest((t.granted + i) % measures); count < fewest {
			first, fewest = one, count
		}
	}
	return first
}

// quietest returns the newest of the quietest turns by a measure, and how many these are.
func (t *turnQueue) quietest(measure int) (newest *turn, count int) {
	lowest := math.MaxInt
	for _, one := range t.waiting {
		switch rank := one.rank(measure); {
		case rank < lowest:
			newest, count, lowest = one, 1, rank
		case rank == lowest:
			newest, count = one, count+1
		}
	}
	return newest, count
}

// last returns the turn that is among the quietest of the most even by the measure by which these are the fewest. Among
// equals it is the oldest.
func (t *turnQueue) last() *turn {
	fewest := make([]int, len(t.waiting))
	for measure := range measures {
		var upTo [ranks]int // turns of at most this rank
		for _, one := range t.waiting {
			upTo[one.rank(measure)]++
		}
		for rank := 1; rank < ranks; rank++ {
			upTo[rank] += upTo[rank-1]
		}
		for i, one := range t.waiting {
			if count := upTo[one.rank(measure)]; measure == 0 || count < fewest[i] {
				fewest[i] = count
			}
		}
	}
	return t.waiting[slices.Index(fewest, slices.Max(fewest))]
}

// ranks is the number of ranks.
const ranks = 8

// rank is lower for turns that go first by a measure: 0 for a known browser. Noises of the same order of magnitude are
// equal.
func (one *turn) rank(measure int) int {
	switch {
	case one.noises == nil:
		return 0
	case measure == measures:
		return 1
	}
	return 1 + bits.Len(uint(one.noises[measure].attempts()))
}

func (one *turn) count(attempts int) {
	for _, n := range one.noises {
		n.add(attempts)
	}
}

// measures is the number of noises of a caller.
const measures = 5

// noisesOf returns the noises of a caller's address, networks and account. An address of IPv6 is a /64, as one person
// has it, and its networks are a customer's /48, a /40 and a provider's /32.
func (t *turnQueue) noisesOf(c Caller) []*noise {
	address := c.Address.Unmap().WithZone("")
	lengths := [measures - 1]int{32, 24, 16, 8}
	if address.Is6() {
		lengths = [...]int{64, 48, 40, 32}
	}
	var all []*noise
	for _, length := range lengths {
		network, _ := address.Prefix(length) // without an address, the zero Prefix
		all = append(all, t.noiseOf("network:"+network.String()))
	}
	return append(all, t.noiseOf("account:"+spelling.Key(c.Email)))
}

func (t *turnQueue) noiseOf(key string) *noise {
	key = digest(key)
	n, known := t.noise.Get(key)
	if !known {
		n = &noise{}
		t.noise.Add(key, n)
	}
	return n
}

// A noise is a number of attempts, of which one is forgotten each forgottenIn.
type noise struct{ until time.Time }

// attempts returns the number, rounded.
func (n *noise) attempts() int {
	return int(max(0, time.Until(n.until)+forgottenIn/2) / forgottenIn)
}

func (n *noise) add(attempts int) {
	wait := max(0, time.Until(n.until)) + time.Duration(attempts)*forgottenIn
	n.until = time.Now().Add(min(wait, loudest))
}

// maxLocalKeys limits the memory of a localCounter. Beyond it, the key that was used least recently is dropped: a flood
// from many addresses costs accuracy, not memory. The events of a key are limited by its limit.
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
