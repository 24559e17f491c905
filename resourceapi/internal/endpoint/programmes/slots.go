package programmes

import (
	"context"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/rest"
	"github.com/almonerhq/almoner/shared/server/inflight"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
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
	imports *inflight.Requests[uuid.UUID] // by workspace
	maxWait time.Duration
}

func newSlots(total, perWorkspace int, maxWait time.Duration) slots {
	return slots{maxWait: maxWait, imports: inflight.New[uuid.UUID](inflight.Bounds{
		InFlight: math.MaxInt,
		AtOnce:   perWorkspace,
		Total:    total,
		Wait:     maxWait,
	})}
}

// upTo returns the Body that reads at most limit bytes, once the workspace has a slot. The write keeps the slot.
func (s slots) upTo(limit int64) gate.Body {
	return func(w http.ResponseWriter, r *http.Request, caller gate.Caller) ([]byte, func(), error) {
		leave, err := s.enter(r.Context(), caller.WorkspaceID)
		if err != nil {
			return nil, nil, err
		}
		// The time limit keeps a slow sender from occupying the slot.
		content, err := rest.ReadBodyWithin(w, r, limit, importWithin)
		if err != nil {
			leave()
			return nil, nil, err
		}
		return content, leave, nil
	}
}

// enter waits for a slot of the workspace. The caller must call leave when done. If no slot became free in time, or
// ctx ended, the error is an *apierr.Error of kind RateLimited.
func (s slots) enter(ctx context.Context, workspace uuid.UUID) (leave func(), err error) {
	turn, err := s.imports.Enter(ctx, workspace)
	if err != nil {
		return nil, &apierr.Error{
			Kind:       apierr.RateLimited,
			RetryAfter: int(s.maxWait / time.Second),
			Message:    "Too many imports are being received. Send this import again after the time in Retry-After.",
		}
	}
	return sync.OnceFunc(func() { turn.Leave(false) }), nil
}
