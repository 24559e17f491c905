package clientmetadata

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
)

const (
	atOnce    = 4  // concurrent fetches in one queue
	maxQueued = 32 // requests that may wait in one queue
)

// errQueueFull is not the document's fault, so it is not remembered as a failure.
var errQueueFull = fmt.Errorf("%w: too many reads from its host are in progress", client.ErrUnreachable)

// host holds two queues for one host. Anyone can invent URLs; those in the new queue cannot delay clients that are in
// use.
type host struct{ known, new fetchQueue }

func newHost() *host {
	return &host{fetchQueue{slots: make(chan struct{}, atOnce)}, fetchQueue{slots: make(chan struct{}, atOnce)}}
}

func (h *host) line(known bool) *fetchQueue {
	if known {
		return &h.known
	}
	return &h.new
}

// A fetchQueue limits how many callers fetch at once and how many wait.
type fetchQueue struct {
	slots   chan struct{}
	waiting atomic.Int32
}

// enter waits for a slot. It returns errQueueFull, or leave, which the caller must call afterwards.
func (q *fetchQueue) enter(ctx context.Context) (leave func(), err error) {
	if q.waiting.Add(1) > maxQueued {
		q.waiting.Add(-1)
		return nil, errQueueFull
	}
	defer q.waiting.Add(-1)
	select {
	case q.slots <- struct{}{}:
		return func() { <-q.slots }, nil
	case <-ctx.Done():
		return nil, errQueueFull
	}
}
