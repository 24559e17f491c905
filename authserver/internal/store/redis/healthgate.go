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
func (p *healthGate) answering() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answers == nil
}

// available reports whether the server answers. It waits up to within for a server that does not.
func (p *healthGate) available(ctx context.Context, within time.Duration) bool {
	p.mu.Lock()
	answers := p.answers
	p.mu.Unlock()
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
func (p *healthGate) stopped(probe func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answers != nil {
		return
	}
	answers := make(chan struct{})
	p.answers = answers
	go func() {
		for !probe() {
			time.Sleep(probePause)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.answers = nil
		close(answers)
	}()
}
