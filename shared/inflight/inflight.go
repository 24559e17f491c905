// Package inflight bounds how many requests of one key are in flight and how many of them run at once.
//
// Both services bound the requests of each credential with it (contract, section 6); resourceapi also bounds
// the searches, the reads and the writes of a workspace. The bounds apply per process.
package inflight

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

var (
	// ErrTooMany reports that the key has the maximum number of requests in flight.
	ErrTooMany = errors.New("too many requests in flight")
	// ErrWaited reports that the turn of the request did not come in time.
	ErrWaited = errors.New("waited too long in the queue")
	// ErrFailing reports that the requests ahead failed because a store does not answer, so that waiting is
	// useless.
	ErrFailing = errors.New("the requests ahead failed")
)

// failsAfter is the minimum time a request has waited when the failure of one ahead ends its wait.
const failsAfter = 500 * time.Millisecond

// Bounds are the bounds of each key.
type Bounds struct {
	InFlight int // maximum number of requests
	AtOnce   int // number that run at once; the others wait
	// Alone replaces AtOnce while no other key has requests in flight, if it is larger.
	Alone int
	Wait  time.Duration // maximum time to wait for a turn
}

// Requests tracks the requests in flight by key. It is safe for concurrent use.
type Requests[Key comparable] struct {
	bounds Bounds

	mu    sync.Mutex
	byKey map[Key]*requests
}

// requests tracks the requests of one key.
type requests struct {
	inFlight int
	working  int
	waiting  []*waiter // in the order of their arrival
}

type waiter struct {
	since time.Time
	turn  chan error // receives once: nil if the turn has come
}

// New makes a Requests.
func New[Key comparable](bounds Bounds) *Requests[Key] {
	return &Requests[Key]{bounds: bounds, byKey: map[Key]*requests{}}
}

// A Turn is a request that is running. Leave ends it.
type Turn struct {
	// Others is the number of requests of the key that were in flight when this one arrived.
	Others int

	leave func(failed bool)
}

// Leave ends the request. failed reports that a store did not answer: requests that have waited long for
// their turn then fail as well.
func (t Turn) Leave(failed bool) { t.leave(failed) }

// Enter waits for the turn of a request. It returns ErrTooMany at once, or later ErrWaited, ErrFailing or the
// error of ctx.
func (r *Requests[Key]) Enter(ctx context.Context, key Key) (Turn, error) {
	others, mine, err := r.arrive(key)
	if err != nil {
		return Turn{Others: others}, err
	}
	turn := Turn{Others: others, leave: func(failed bool) { r.leave(key, failed) }}
	if mine == nil {
		return turn, nil
	}
	timer := time.NewTimer(r.bounds.Wait)
	defer timer.Stop()
	select {
	case err = <-mine.turn:
	case <-timer.C:
		err = r.stopWaiting(key, mine, ErrWaited)
	case <-ctx.Done():
		err = r.stopWaiting(key, mine, context.Cause(ctx))
	}
	return turn, err
}

// arrive counts a request. It returns a nil waiter if the request may run at once.
func (r *Requests[Key]) arrive(key Key) (others int, mine *waiter, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.byKey[key]
	if all == nil {
		all = &requests{}
		r.byKey[key] = all
	}
	others = all.inFlight
	if others >= r.bounds.InFlight {
		return others, nil, ErrTooMany
	}
	all.inFlight++
	if all.working < r.atOnce() {
		all.working++
		return others, nil, nil
	}
	mine = &waiter{since: time.Now(), turn: make(chan error, 1)}
	all.waiting = append(all.waiting, mine)
	return others, mine, nil
}

// stopWaiting ends a wait with the cause, unless the wait has just ended.
func (r *Requests[Key]) stopWaiting(key Key, mine *waiter, cause error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.byKey[key]
	if all != nil {
		if at := slices.Index(all.waiting, mine); at >= 0 {
			all.waiting = slices.Delete(all.waiting, at, at+1)
			r.forget(key, all, 1)
			return cause
		}
	}
	return <-mine.turn
}

func (r *Requests[Key]) leave(key Key, failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.byKey[key]
	ended := 1
	for failed && len(all.waiting) > 0 && time.Since(all.waiting[0].since) >= failsAfter {
		all.waiting[0].turn <- ErrFailing
		all.waiting = slices.Delete(all.waiting, 0, 1)
		ended++
	}
	all.working--
	r.start(all)
	r.forget(key, all, ended)
}

// forget subtracts ended requests and removes a key without requests. If one key remains, it may run more requests.
func (r *Requests[Key]) forget(key Key, all *requests, ended int) {
	if all.inFlight -= ended; all.inFlight > 0 {
		return
	}
	delete(r.byKey, key)
	if len(r.byKey) == 1 {
		for _, remaining := range r.byKey {
			r.start(remaining)
		}
	}
}

// atOnce returns how many requests of a key may run now.
func (r *Requests[Key]) atOnce() int {
	if len(r.byKey) == 1 {
		return max(r.bounds.AtOnce, r.bounds.Alone)
	}
	return r.bounds.AtOnce
}

// start gives waiting requests their turns, in the order of their arrival.
func (r *Requests[Key]) start(all *requests) {
	for len(all.waiting) > 0 && all.working < r.atOnce() {
		all.waiting[0].turn <- nil
		all.waiting = slices.Delete(all.waiting, 0, 1)
		all.working++
	}
}

// Len returns the number of keys with requests in flight.
func (r *Requests[Key]) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byKey)
}
