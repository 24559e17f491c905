// Package ratelimit answers: has whoever is refused here been refused too often lately?
//
//   - F1 Only what was refused is counted, after it was refused. A request that is in order is never asked, and so never
//     throttled: nobody can lock a client out by failing in its name.
//   - F2 What a refusal must do (revoke a replayed grant) has been done before it is counted.
//   - F3 A refusal waits for no store: each process counts for itself, tells the shared count of it soon after (Share), and holds back
//     where all of them together were over the limit. Without the shared count, each process goes on counting for itself.
//   - F4 Strangers cannot make the counts grow: clients share 65,536 slots, whatever identifiers are made up, and a grant
//     counts only for whoever presents a token that we minted for it.
//
// Addresses do not count: all users of a connector platform come from the same few. Its callers are the token endpoint
// and its neighbours (revocation, introspection).
package ratelimit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"time"

	"github.com/google/uuid"
)

// How many refusals a minute are answered in full. A client counts guesses: wrong secrets, tokens that are none. A
// grant counts what is presented of it and good for nothing any more. Many racers with one token stay far below.
const (
	PerClient = 6000
	PerGrant  = 600
)

// A Rate counts events by key, for every process that shares it.
type Rate interface {
	// Take counts n events of key, or as many as there is room for: perMinute are let through within a minute. It says
	// how long it takes until there would be room for the rest, 0 where there is none.
	Take(ctx context.Context, key string, perMinute, n int) (wait time.Duration, err error)
}

// A Limiter counts failures. It is safe for concurrent use.
type Limiter struct {
	shared Rate
	local  *localRate
	unsent *unsentCounts
	log    *slog.Logger
	now    func() time.Time
}

// NewLimiter makes a Counter. Until Share runs, it counts for itself.
func NewLimiter(shared Rate, log *slog.Logger, now func() time.Time) *Limiter {
	return &Limiter{shared: shared, local: newLocalRate(), unsent: newUnsentCounts(), log: log, now: now}
}

// ForClient counts a failure of whoever named this client, registered or not. It says how long to wait, 0 for not at
// all.
func (c *Limiter) ForClient(name string) time.Duration {
	sum := sha256.Sum256([]byte(name))
	return c.take("client:"+hex.EncodeToString(sum[:2]), PerClient)
}

// ForGrant counts a failure with a code or token that was minted for this grant.
func (c *Limiter) ForGrant(id uuid.UUID) time.Duration {
	return c.take("grant:"+id.String(), PerGrant)
}

func (c *Limiter) take(key string, perMinute int) time.Duration {
	wait := c.local.take(key, perMinute, c.now())
	if wait == 0 {
		c.unsent.add(key, perMinute)
	}
	return wait
}
