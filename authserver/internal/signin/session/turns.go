package session

import (
	"context"
	"math/bits"
	"net/netip"
	"sync"
	"time"
)

const (
	atOnce      = 2 // hashes at a time: each takes a core and 19 MiB
	maxWaiting  = 128
	mistyped    = 2 // wrong passwords that change nobody's rank
	longestWait = 3 * time.Second

	// BusyFor is when to try again after ErrBusy.
	BusyFor = 3 * time.Second

	// perKnownBrowser is how many checks an account has in the lane of its known browsers, per period of recentFor.
	// More go with the others, so that an account of the attacker's own does not open the lane to a flood.
	perKnownBrowser = 20
)

// A Caller is who asks for a check of a password, as far as that is known before the check.
type Caller struct {
	Email   string
	Address netip.Addr
	Known   bool // the browser has signed in to this account before
}

// turns decide who is next where more passwords are to be checked than can be. One hash costs as much as a hundred
// other requests, so a flood of wrong passwords always finds this queue full. Three rules keep it from other people's
// sign-ins:
//
//   - Browsers that have signed in to the account before go first.
//   - Of the others those go first whose network and account have had the fewest checks lately. A network is the /24 of an IPv4 address and
//     the /48 of an IPv6 address, which is what one customer may have; wider networks count too, for less.
//   - Of equals the newest goes first. When all are served late, those who have waited longest have given up, and a flood mostly waits for
//     itself.
//
// Who is last when the queue is full, or has waited for longestWait, gets ErrBusy. turns are safe for concurrent use.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting []*turn // in the order of their coming
	lately  *recentCounter
}

type turn struct {
	keys  []candidate // nil: a known browser
	ready chan bool   // gets one value: whether it is this one's turn
}

// candidate is a key of lately. The first spare ones count for nothing, for people mistype; the others half as much for
// each bit of shift.
type candidate struct {
	key          string
	spare, shift int
}

func newTurns(now func() time.Time) *turns {
	return &turns{free: atOnce, lately: newRecentCounter(now)}
}

// enter waits for a turn, which leave ends. It returns ErrBusy.
func (q *turns) enter(ctx context.Context, c Caller) error {
	mine, now := q.queue(c)
	if now {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	select {
	case granted := <-mine.ready:
		if granted {
			return nil
		}
		return ErrBusy
	case <-ctx.Done():
		if q.remove(mine) || !<-mine.ready {
			return ErrBusy
		}
		return nil // the turn came at the same moment
	}
}

// queue says whether it is the caller's turn at once.
func (q *turns) queue(c Caller) (mine *turn, now bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	mine = &turn{ready: make(chan bool, 1)}
	if lane := "known:" + digest(c.Email); !c.Known || q.lately.count(lane) >= perKnownBrowser {
		mine.keys = keysOf(c)
	} else {
		q.lately.add(lane)
	}
	if q.free > 0 {
		q.free--
		return mine, true
	}
	if q.waiting = append(q.waiting, mine); len(q.waiting) > maxWaiting {
		last := q.last()
		q.take(last).ready <- false
	}
	return mine, false
}

// leave ends a turn and begins the next.
func (q *turns) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.free++
		return
	}
	q.take(q.first()).ready <- true
}

// wrong counts a wrong password, for those who come from there or want that account next.
func (q *turns) wrong(c Caller) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, of := range keysOf(c) {
		q.lately.add(of.key)
	}
}

func (q *turns) remove(mine *turn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, one := range q.waiting {
		if one == mine {
			q.take(i)
			return true
		}
	}
	return false
}

func (q *turns) take(i int) *turn {
	taken := q.waiting[i]
	q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
	return taken
}

// first is the place of the best rank, of equals the newest.
func (q *turns) first() int {
	best, rank := 0, q.rank(q.waiting[0])
	for i, one := range q.waiting {
		if r := q.rank(one); r <= rank {
			best, rank = i, r
		}
	}
	return best
}

// last is the place of the worst rank, of equals the oldest.
func (q *turns) last() int {
	worst, rank := 0, q.rank(q.waiting[0])
	for i, one := range q.waiting {
		if r := q.rank(one); r > rank {
			worst, rank = i, r
		}
	}
	return worst
}

// rank is lower for who goes first. Counts of the same order of magnitude are equal.
func (q *turns) rank(t *turn) int {
	if t.keys == nil {
		return -1
	}
	rank := 0
	for _, of := range t.keys {
		rank = max(rank, bits.Len(uint(max(0, q.lately.count(of.key)-of.spare)>>of.shift)))
	}
	return rank
}

// keysOf are what a caller's wrong passwords are counted by: the account, and the networks around the address.
func keysOf(c Caller) []candidate {
	keys := []candidate{{key: "account:" + digest(c.Email), spare: mistyped}}
	address := c.Address.Unmap().WithZone("")
	lengths := [...]int{24, 16, 8}
	if address.Is6() {
		lengths = [...]int{48, 40, 32}
	}
	for i, length := range lengths {
		if network, err := address.Prefix(length); err == nil {
			keys = append(keys, candidate{key: "network:" + network.String(), spare: mistyped, shift: 4 * i})
		}
	}
	return keys
}
