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
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"time"

	"github.com/google/uuid"
)

// Refusals per minute that get a full response. A client counts guesses: wrong secrets and invalid tokens. A
// grant counts presented codes and tokens that are no longer valid. Concurrent use of one token stays far
// below.
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
	unsent *unsentCounts
	log    *slog.Logger
	now    func() time.Time
}

// NewLimiter makes a Limiter. Until Share runs, it counts locally.
func NewLimiter(shared Rate, log *slog.Logger, now func() time.Time) *Limiter {
	return &Limiter{shared: shared, local: newLocalRate(), unsent: newUnsentCounts(), log: log, now: now}
}

// ForClient counts a failure of a request with this client name, registered or not. It returns how long to
// wait, or 0.
func (l *Limiter) ForClient(name string) time.Duration {
	sum := sha256.Sum256([]byte(name))
	return l.take("client:"+hex.EncodeToString(sum[:2]), PerClient)
}

// ForGrant counts a failure with a code or token that was issued for this grant.
func (l *Limiter) ForGrant(id uuid.UUID) time.Duration {
	return l.take("grant:"+id.String(), PerGrant)
}

func (l *Limiter) take(key string, perMinute int) time.Duration {
	wait := l.local.take(key, perMinute, l.now())
	if wait == 0 {
		l.unsent.add(key, perMinute)
	}
	return wait
}
