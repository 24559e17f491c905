package clientmetadata

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
)

const (
	atOnce = 4  // how many documents are read at a time in one line
	inLine = 32 // how many more may wait for that
)

// errQueueFull is no fault of the document's, and no reason to keep away from it.
var errQueueFull = fmt.Errorf("%w: too many documents of its host are being read", client.ErrUnreachable)

// A host has two lines: an address costs nothing to make up, and whoever makes them up must hold up no client that is
// in use.
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

// A line lets a few read at once, and a few more wait for them.
type fetchQueue struct {
	slots   chan struct{}
	waiting atomic.Int32
}

// enter waits for its turn. It returns errCrowded, or leave, to be called afterwards.
func (l *fetchQueue) enter(ctx context.Context) (leave func(), err error) {
	if l.waiting.Add(1) > inLine {
		l.waiting.Add(-1)
		return nil, errQueueFull
	}
	defer l.waiting.Add(-1)
	select {
	case l.slots <- struct{}{}:
		return func() { <-l.slots }, nil
	case <-ctx.Done():
		return nil, errQueueFull
	}
}
