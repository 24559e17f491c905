// Package failures answers: has whoever is refused here been refused too often lately?
//
//   - F1 Only what was refused is counted, after it was refused. A request that is in order is never asked, and so never
//     throttled: nobody can lock a client out by failing in its name.
//   - F2 What a refusal must do (revoke a replayed grant) has been done before it is counted.
//   - F3 Without the shared count, each process counts for itself.
//   - F4 Strangers cannot make the counts grow: clients share 65,536 slots, whatever identifiers are made up, and a grant
//     counts only for whoever presents a token that we minted for it.
//
// Addresses do not count: all users of a connector platform come from the same few. Its callers are the token endpoint and its
// neighbours (revocation, introspection).
package failures

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// How many refusals a minute are answered in full. A client counts guesses: wrong secrets, tokens that are none. A grant counts
// what is presented of it and good for nothing any more. Many racers with one token stay far below.
const (
	PerClient = 6000
	PerGrant  = 600

	distrustAfterFail = 5 * time.Second
)

// A Rate counts events by key, for every process that shares it.
type Rate interface {
	// Take counts one event of key, unless there were perMinute within the last minute: then it says how long to wait.
	Take(ctx context.Context, key string, perMinute int) (wait time.Duration, err error)
}

// A Counter counts failures. It is safe for concurrent use.
type Counter struct {
	shared     Rate
	local      *localRate
	log        *slog.Logger
	now        func() time.Time
	localUntil atomic.Int64
}

// NewCounter makes a Counter.
func NewCounter(shared Rate, log *slog.Logger, now func() time.Time) *Counter {
	return &Counter{shared: shared, local: newLocalRate(), log: log, now: now}
}

// OfClient counts a failure of whoever named this client, registered or not. It says how long to wait, 0 for not at all.
func (c *Counter) OfClient(ctx context.Context, name string) time.Duration {
	sum := sha256.Sum256([]byte(name))
	return c.take(ctx, "client:"+hex.EncodeToString(sum[:2]), PerClient)
}

// OfGrant counts a failure with a code or token that was minted for this grant.
func (c *Counter) OfGrant(ctx context.Context, id uuid.UUID) time.Duration {
	return c.take(ctx, "grant:"+id.String(), PerGrant)
}

// take asks this process first: what is over the limit here is over it everywhere, so a flood costs the shared count little.
func (c *Counter) take(ctx context.Context, key string, perMinute int) time.Duration {
	now := c.now()
	if wait := c.local.take(key, perMinute, now); wait > 0 || now.UnixNano() < c.localUntil.Load() {
		return wait
	}
	wait, err := c.shared.Take(ctx, key, perMinute)
	if err != nil && ctx.Err() == nil {
		c.localUntil.Store(now.Add(distrustAfterFail).UnixNano())
		c.log.Warn("failures are counted in this process alone for now", "error", err)
	}
	return wait
}
