// Package ratelimit limits repeated refusals.
//
//   - F1 Only refusals are counted, after the refusal. A valid request is never checked and so never throttled: an
//     attacker cannot lock a client out by failing in its name.
//   - F2 The effects of a refusal (revoking a replayed grant) happen before it is counted.
//   - F3 A refusal does not wait for a store: each process counts locally, reports to the shared count soon after
//     (Share), and blocks keys for which all processes together exceeded the limit. Without the shared count, each
//     process continues to count locally.
//   - F4 Attackers cannot make the counts grow: clients share 65,536 slots, whatever identifiers are invented, and a
//     grant counts only with a token that we issued for it.
//
// Addresses do not count: all users of a connector platform share a few. The callers are the token,
// revocation and introspection endpoints.
package ratelimit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Refusals per minute that get a full response. A client counts guesses: wrong secrets and invalid tokens. A grant
// counts presented codes and tokens that are no longer valid. Concurrent use of one token stays far below.
const (
	PerClient = 6000
	PerGrant  = 600
)

// A Rate counts events by key across all processes that share it.
type Rate interface {
	// Take counts n events of key, or as many as the limit of perMinute allows. It returns how long it takes
	// until the rest would be allowed, or 0 if all were counted.
	Take(ctx context.Context, key string, perMinute, n int) (wait time.Duration, err error)
}

// A Limiter counts refusals. It is safe for concurrent use.
type Limiter struct {
	shared Rate
	local  *localRate
	log    *slog.Logger
	now    func() time.Time

	throttled func(counted string) // observes refusals above a limit, or nil

	mu      sync.Mutex
	unsent  map[string]count // not yet reported to the shared count
	pending chan struct{}    // holds one value while there may be unsent counts
}

type count struct{ perMinute, n int }

// What a Limiter counts refusals for.
const (
	OfClient = "client"
	OfGrant  = "grant"
)

// ObserveThrottled makes the Limiter call the observer with OfClient or OfGrant for each refusal above the limit. Call
// it before the first refusal.
func (l *Limiter) ObserveThrottled(observer func(counted string)) { l.throttled = observer }

// NewLimiter makes a Limiter. Until Share runs, it counts locally.
func NewLimiter(shared Rate, log *slog.Logger, now func() time.Time) *Limiter {
	return &Limiter{
		shared:  shared,
		local:   newLocalRate(),
		log:     log,
		now:     now,
		unsent:  map[string]count{},
		pending: make(chan struct{}, 1),
	}
}

// ForClient counts a refusal of a request with this client name, registered or not. It returns how long to wait, or 0.
func (l *Limiter) ForClient(name string) time.Duration {
	sum := sha256.Sum256([]byte(name))
	return l.take(OfClient, hex.EncodeToString(sum[:2]), PerClient)
}

// ForGrant counts a refusal with a code or token that was issued for this grant.
func (l *Limiter) ForGrant(id uuid.UUID) time.Duration {
	return l.take(OfGrant, id.String(), PerGrant)
}

func (l *Limiter) take(counted, name string, perMinute int) time.Duration {
	key := counted + ":" + name
	wait := l.local.take(key, perMinute, l.now())
	if wait == 0 {
		l.remember(key, perMinute)
	} else if l.throttled != nil {
		l.throttled(counted)
	}
	return wait
}

// maxLocalKeys bounds the memory of a localRate: when it is full, new keys are not counted.
const maxLocalKeys = 100_000

// A localRate stores one time per key (the generic cell rate algorithm): when the key would be at rest if its
// events had come evenly.
type localRate struct {
	mu   sync.Mutex
	rest map[string]time.Time
}

func newLocalRate() *localRate { return &localRate{rest: map[string]time.Time{}} }

func (l *localRate) take(key string, perMinute int, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest, known := l.rest[key]
	if !known && len(l.rest) >= maxLocalKeys && !l.makeRoom(now) {
		return 0
	}
	if rest.Before(now) {
		rest = now
	}
	rest = rest.Add(time.Minute / time.Duration(perMinute))
	if wait := rest.Sub(now) - time.Minute; wait > 0 {
		return wait
	}
	l.rest[key] = rest
	return 0
}

// hold blocks a key for this long, up to a minute.
func (l *localRate) hold(key string, perMinute int, wait time.Duration, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := now.Add(min(wait, time.Minute) + time.Minute - time.Minute/time.Duration(perMinute))
	if known, there := l.rest[key]; there && rest.After(known) {
		l.rest[key] = rest
	}
}

// makeRoom removes every key that is at rest.
func (l *localRate) makeRoom(now time.Time) bool {
	for key, rest := range l.rest {
		if !rest.After(now) {
			delete(l.rest, key)
		}
	}
	return len(l.rest) < maxLocalKeys
}

const (
	// shareEvery is the interval between reports to the shared count. All processes together can exceed the
	// limit by what each allows in this time.
	shareEvery = 200 * time.Millisecond

	// maxPerShare bounds the cost of a flood of invented names: the keys with the most events are reported
	// first, the others are counted only by this process.
	maxPerShare = 200

	shareWithin       = time.Second
	distrustAfterFail = 5 * time.Second
)

// remember counts a refusal that Share reports.
func (l *Limiter) remember(key string, perMinute int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.unsent[key]; !known && len(l.unsent) >= maxLocalKeys {
		return
	}
	l.unsent[key] = count{perMinute, l.unsent[key].n + 1}
	select {
	case l.pending <- struct{}{}:
	default:
	}
}

// Share reports this process's refusals to the shared count until ctx ends.
func (l *Limiter) Share(ctx context.Context) {
	for pause := shareEvery; ; {
		select {
		case <-ctx.Done():
			return
		case <-l.pending:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = shareEvery
		if err := l.Report(ctx); err != nil && ctx.Err() == nil {
			pause = distrustAfterFail
			l.log.WarnContext(ctx, "failed requests counted in this process only", "error", err)
		}
	}
}

// Report reports the unsent counts now and blocks the keys that exceed the limit. It stops at an error: the rest is
// counted only by this process.
func (l *Limiter) Report(ctx context.Context) error {
	l.mu.Lock()
	all := l.unsent
	l.unsent = map[string]count{}
	l.mu.Unlock()
	busiest := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Compare(all[b].n, all[a].n) })
	ctx, cancel := context.WithTimeout(ctx, shareWithin)
	defer cancel()
	for _, key := range busiest[:min(len(busiest), maxPerShare)] {
		of := all[key]
		wait, err := l.shared.Take(ctx, key, of.perMinute, of.n)
		if err != nil {
			return err
		}
		if wait > 0 {
			l.local.hold(key, of.perMinute, wait, l.now())
		}
	}
	return nil
}
