package programmes

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/records"
	"github.com/almonerhq/almoner/resourceapi/internal/strictjson"
)

// Bounds of the imports that one process receives and accepts at once. Each takes about four times the size of its
// file in memory until Postgres has stored it.
const (
	importsAtOnce      = 6
	importsOfWorkspace = 2
	importWait         = 5 * time.Second // wait for a slot, before the body is read
	importWithin       = 5 * time.Second // time to receive the body, once there is a slot
)

// slots bounds how many imports are in memory, in total and per workspace. Other imports wait, in order of arrival,
// before their body is read; a workspace at its own bound does not block the others. It is safe for concurrent use.
type slots struct {
	total        int // at once
	perWorkspace int
	maxWait      time.Duration

	mu      sync.Mutex
	used    int
	by      map[uuid.UUID]int
	waiting []*waiter
}

type waiter struct {
	workspace uuid.UUID
	granted   chan struct{} // closed with mu held
}

func newSlots(total, perWorkspace int, maxWait time.Duration) *slots {
	return &slots{total: total, perWorkspace: perWorkspace, maxWait: maxWait, by: map[uuid.UUID]int{}}
}

// upTo returns the Body that reads at most limit bytes, once the workspace has a slot. The write keeps the slot.
func (s *slots) upTo(limit int64) records.Body {
	return func(w http.ResponseWriter, r *http.Request, caller gate.Caller) ([]byte, func(), error) {
		leave, err := s.enter(r.Context(), caller.WorkspaceID)
		if err != nil {
			return nil, nil, err
		}
		// The time limit keeps a slow sender from occupying the slot.
		content, err := strictjson.ReadWithin(w, r, limit, importWithin)
		if err != nil {
			leave()
			return nil, nil, err
		}
		return content, leave, nil
	}
}

// enter waits for a slot of the workspace. The caller must call leave when done. If no slot became free in time, or
// ctx ended, the error is an *apierr.Error of kind RateLimited.
func (s *slots) enter(ctx context.Context, workspace uuid.UUID) (leave func(), err error) {
	w := &waiter{workspace, make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.grant()
	s.mu.Unlock()
	leave = sync.OnceFunc(func() { s.leave(workspace) })
	late := time.NewTimer(s.maxWait)
	defer late.Stop()
	select {
	case <-w.granted:
		return leave, nil
	case <-ctx.Done():
	case <-late.C:
	}
	if s.withdraw(w) {
		return nil, &apierr.Error{
			Kind:       apierr.RateLimited,
			RetryAfter: int(s.maxWait / time.Second),
			Message:    "Too many imports are being received. Send this import again after the time in Retry-After.",
		}
	}
	return leave, nil // granted at the same moment
}

// withdraw removes w from the waiters. It reports whether w was still waiting.
func (s *slots) withdraw(w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.Index(s.waiting, w)
	if at < 0 {
		return false
	}
	s.waiting = slices.Delete(s.waiting, at, at+1)
	return true
}

func (s *slots) leave(workspace uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	if s.by[workspace]--; s.by[workspace] == 0 {
		delete(s.by, workspace)
	}
	s.grant()
}

// grant gives free slots to the waiters that may have one. The caller must hold s.mu.
func (s *slots) grant() {
	s.waiting = slices.DeleteFunc(s.waiting, func(w *waiter) bool {
		if s.used >= s.total || s.by[w.workspace] >= s.perWorkspace {
			return false
		}
		s.used++
		s.by[w.workspace]++
		close(w.granted)
		return true
	})
}
