// Package inflight bounds how many requests of one key are in flight and how many of them run at once.
//
// Both services bound the requests of each credential with it (contract, section 6). resourceapi also bounds the
// searches, reads, writes, imports and webhooks of a workspace, and authserver the searches of a user and the reads of
// client metadata documents. The bounds apply per process.
package inflight

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/net/web"
)

var (
	// ErrTooMany reports that the key has the maximum number of requests in flight.
	ErrTooMany = errors.New("too many requests in flight")
	// ErrWaited reports that the turn of the request did not come in time.
	ErrWaited = errors.New("waited too long in the queue")
	// ErrFailing reports that the requests ahead failed because a store does not answer, so that waiting is useless.
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
	// Total is how many requests of all keys run at once; 0 means no bound. Requests then get their turns in the order
	// of their arrival, whatever their keys, except that a key at its own bound does not hold up the others.
	Total int
	Wait  time.Duration // maximum time to wait for a turn; 0 means as long as the context
}

// Requests tracks the requests in flight by key. It is safe for concurrent use.
type Requests[Key comparable] struct {
	bounds Bounds

	mu      sync.Mutex
	byKey   map[Key]*requests
	working int // of all keys
	arrived int // requests that had to wait, until now
}

// requests tracks the requests of one key.
type requests struct {
	inFlight int
	working  int
	waiting  []*waiter // in the order of their arrival
}

type waiter struct {
	place int // in the order of arrival
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
	var late <-chan time.Time
	if r.bounds.Wait > 0 {
		late = time.After(r.bounds.Wait)
	}
	select {
	case err = <-mine.turn:
	case <-late:
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
	if r.mayRun(all) {
		all.working++
		r.working++
		return others, nil, nil
	}
	r.arrived++
	mine = &waiter{place: r.arrived, since: time.Now(), turn: make(chan error, 1)}
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
	r.working--
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

// mayRun reports whether one more request of a key may run now.
func (r *Requests[Key]) mayRun(all *requests) bool {
	atOnce := r.bounds.AtOnce
	if len(r.byKey) == 1 {
		atOnce = max(atOnce, r.bounds.Alone)
	}
	return all.working < atOnce && (r.bounds.Total == 0 || r.working < r.bounds.Total)
}

// start gives waiting requests their turns after a change of the key: those of the key or, if the total is bounded, of
// any key, in the order of their arrival.
func (r *Requests[Key]) start(changed *requests) {
	for next := r.next(changed); next != nil; next = r.next(changed) {
		next.waiting[0].turn <- nil
		next.waiting = slices.Delete(next.waiting, 0, 1)
		next.working++
		r.working++
	}
}

// next returns the key whose first waiting request may run, or nil.
func (r *Requests[Key]) next(changed *requests) (first *requests) {
	candidates := func(yield func(*requests) bool) { yield(changed) }
	if r.bounds.Total > 0 {
		candidates = maps.Values(r.byKey)
	}
	for all := range candidates {
		if len(all.waiting) > 0 && r.mayRun(all) && (first == nil || all.waiting[0].place < first.waiting[0].place) {
			first = all
		}
	}
	return first
}

// Limits of one credential in one process (contract, section 6).
const (
	MaxPerCredential = 64
	maxAtOnce        = 8
	// maxWait is longer than 64 requests need at 8 at a time if each takes as long as a store may take.
	maxWait = 10 * time.Second
	// retryAfter is the time in seconds after which one of the requests in flight has probably ended.
	retryAfter = 1
)

// credentialPolicy is the name of the limit in the headers RateLimit and RateLimit-Policy.
const credentialPolicy = "requests-in-flight"

// A Credential identifies a credential in one process: the hash of a personal access token or the id of a grant.
type Credential [32]byte

// CredentialOf returns the credential of a query.
func CredentialOf(q standing.Query) (c Credential) {
	if q.PATHash != nil {
		copy(c[:], q.PATHash)
		return c
	}
	copy(c[:], q.GrantID[:])
	return c
}

// Credentials bounds the requests of each credential. It is safe for concurrent use.
type Credentials struct{ requests *Requests[Credential] }

// NewCredentials returns the Credentials of one process. alone is how many requests of a credential run at once while
// no other credential has requests; 0 means no exception.
func NewCredentials(alone int) *Credentials {
	return &Credentials{requests: New[Credential](Bounds{
		InFlight: MaxPerCredential,
		AtOnce:   maxAtOnce,
		Alone:    alone,
		Wait:     maxWait,
	})}
}

// Enter waits for the turn of a request and sets rate limit headers in h. Its error is an *apierr.Error. The
// caller ends the turn with Leave.
func (c *Credentials) Enter(ctx context.Context, h http.Header, by Credential) (Turn, error) {
	turn, err := c.requests.Enter(ctx, by)
	web.SetRateLimits(h, turn.RateLimit())
	if err != nil {
		const message = "This credential has 64 requests in flight, which is the maximum. Wait until one finishes."
		err = Refusal(err, message)
	}
	return turn, err
}

// RateLimit returns what is left for the credential of a turn.
func (t Turn) RateLimit() web.RateLimit {
	return web.RateLimit{
		Name:      credentialPolicy,
		Quota:     MaxPerCredential,
		Unit:      web.UnitConcurrentRequests,
		Remaining: MaxPerCredential - t.Others - 1,
	}
}

// Refusal returns the error response for a request that got no turn because of cause. message is for ErrTooMany.
func Refusal(cause error, message string) *apierr.Error {
	switch {
	case errors.Is(cause, ErrFailing):
		refusal := apierr.New(apierr.Unavailable,
			"The service cannot reach its database at the moment. Try again in a few seconds.")
		refusal.Cause = cause
		return refusal
	case errors.Is(cause, ErrWaited):
		message = "The earlier requests of this credential take too long. Send fewer requests at once."
	case errors.Is(cause, context.Canceled):
		message = "The client canceled the request." // the sender does not read this
	}
	refusal := apierr.New(apierr.RateLimited, message)
	refusal.RetryAfter = retryAfter
	return refusal
}

// Bytes bounds the response bytes in memory, in total and per key. It is safe for concurrent use.
type Bytes[Key comparable] struct {
	total int // of all keys
	share int // of one

	mu    sync.Mutex
	used  int
	byKey map[Key]int
}

// NewBytes makes a Bytes with these bounds.
func NewBytes[Key comparable](total, share int) *Bytes[Key] {
	return &Bytes[Key]{total: total, share: share, byKey: map[Key]int{}}
}

// Hold returns a Hold of one request of the key. It holds nothing yet.
func (b *Bytes[Key]) Hold(key Key) *Hold[Key] { return &Hold[Key]{bytes: b, key: key} }

// A Hold holds the bytes of one request. It is safe for concurrent use.
type Hold[Key comparable] struct {
	bytes *Bytes[Key]
	key   Key

	held     int  // guarded by bytes.mu
	released bool // guarded by bytes.mu
}

// Take takes n more bytes and reports whether there was room. After Release it always returns false, so that
// work that outlives its request takes nothing.
func (h *Hold[Key]) Take(n int) bool {
	b := h.bytes
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.released || b.used+n > b.total || b.byKey[h.key]+n > b.share {
		return false
	}
	b.used += n
	b.byKey[h.key] += n
	h.held += n
	return true
}

// Release returns the bytes. Take fails afterwards.
func (h *Hold[Key]) Release() {
	b := h.bytes
	b.mu.Lock()
	defer b.mu.Unlock()
	h.released = true
	if h.held == 0 {
		return
	}
	b.used -= h.held
	if b.byKey[h.key] -= h.held; b.byKey[h.key] == 0 {
		delete(b.byKey, h.key)
	}
	h.held = 0
}

// Len returns the number of keys with requests in flight.
func (r *Requests[Key]) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byKey)
}
