package ratelimit

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// shareEvery is how long processes may not know of one another: together they let through what each does in this
	// time, beyond the limit.
	shareEvery = 200 * time.Millisecond

	// maxPerShare bounds what a flood of made-up names costs: the busiest keys come first, the others are counted by
	// this process alone.
	maxPerShare = 200

	shareWithin       = time.Second
	distrustAfterFail = 5 * time.Second
)

// unsentCounts are the failures that the shared count does not know of yet.
type unsentCounts struct {
	mu   sync.Mutex
	keys map[string]tally
	some chan struct{} // holds one while there may be any
}

type tally struct{ perMinute, n int }

func newUnsentCounts() *unsentCounts {
	return &unsentCounts{keys: map[string]tally{}, some: make(chan struct{}, 1)}
}

func (u *unsentCounts) add(key string, perMinute int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.keys[key]; !known && len(u.keys) >= maxLocalKeys {
		return
	}
	u.keys[key] = tally{perMinute, u.keys[key].n + 1}
	select {
	case u.some <- struct{}{}:
	default:
	}
}

func (u *unsentCounts) takeAll() map[string]tally {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := u.keys
	u.keys = map[string]tally{}
	return all
}

// Share tells the shared count of this process's failures until ctx ends.
func (c *Limiter) Share(ctx context.Context) {
	for pause := shareEvery; ; {
		select {
		case <-ctx.Done():
			return
		case <-c.unsent.some:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = shareEvery
		if err := c.send(ctx); err != nil && ctx.Err() == nil {
			pause = distrustAfterFail
			c.log.WarnContext(ctx, "failures are counted in this process alone for now", "error", err)
		}
	}
}

// send tells the shared count what it does not know, and holds back the keys for which there was no room. An error ends
// it: what it had not told yet is counted by this process alone.
func (c *Limiter) send(ctx context.Context) error {
	all := c.unsent.takeAll()
	busiest := make([]string, 0, len(all))
	for key := range all {
		busiest = append(busiest, key)
	}
	slices.SortFunc(busiest, func(a, b string) int { return cmp.Compare(all[b].n, all[a].n) })
	ctx, cancel := context.WithTimeout(ctx, shareWithin)
	defer cancel()
	for _, key := range busiest[:min(len(busiest), maxPerShare)] {
		of := all[key]
		wait, err := c.shared.Take(ctx, key, of.perMinute, of.n)
		if err != nil {
			return err
		}
		if wait > 0 {
			c.local.hold(key, of.perMinute, wait, c.now())
		}
	}
	return nil
}
