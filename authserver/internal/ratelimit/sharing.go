package ratelimit

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

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

// unsentCounts are the failures that were not yet reported to the shared count.
type unsentCounts struct {
	mu   sync.Mutex
	keys map[string]count
	some chan struct{} // holds one value while there may be counts
}

type count struct{ perMinute, n int }

func newUnsentCounts() *unsentCounts {
	return &unsentCounts{keys: map[string]count{}, some: make(chan struct{}, 1)}
}

func (u *unsentCounts) add(key string, perMinute int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.keys[key]; !known && len(u.keys) >= maxLocalKeys {
		return
	}
	u.keys[key] = count{perMinute, u.keys[key].n + 1}
	select {
	case u.some <- struct{}{}:
	default:
	}
}

func (u *unsentCounts) takeAll() map[string]count {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := u.keys
	u.keys = map[string]count{}
	return all
}

// Share reports this process's failures to the shared count until ctx ends.
func (l *Limiter) Share(ctx context.Context) {
	for pause := shareEvery; ; {
		select {
		case <-ctx.Done():
			return
		case <-l.unsent.some:
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
	all := l.unsent.takeAll()
	busiest := make([]string, 0, len(all))
	for key := range all {
		busiest = append(busiest, key)
	}
	slices.SortFunc(busiest, func(a, b string) int { return cmp.Compare(all[b].n, all[a].n) })
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
