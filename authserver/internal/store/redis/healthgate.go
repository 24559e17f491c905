package redis

import (
	"context"
	"sync"
	"time"
)

// A healthGate records that a server has stopped answering, so that requests are refused early and no calls
// pile up. The zero value is for a server that answers. It is safe for concurrent use.
type healthGate struct {
	mu      sync.Mutex
	answers chan struct{} // closed once the server answers again; nil while it does
}

const probePause = 20 * time.Millisecond

// answering reports whether the server answers, as far as is known.
func (h *healthGate) answering() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.answers == nil
}

// available reports whether the server answers. It waits up to within for a server that does not.
func (h *healthGate) available(ctx context.Context, within time.Duration) bool {
	h.mu.Lock()
	answers := h.answers
	h.mu.Unlock()
	if answers == nil {
		return true
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-answers:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// stopped records that the server does not answer. It calls probe in the background until probe returns true.
func (h *healthGate) stopped(probe func() bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.answers != nil {
		return
	}
	answers := make(chan struct{})
	h.answers = answers
	go func() {
		for !probe() {
			time.Sleep(probePause)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.answers = nil
		close(answers)
	}()
}
