package connectionlog

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/web"
)

// A Stop is where a walk stopped before there was a grant. A page that waits for its answer is one, until it has it.
type Stop struct {
	TenantID  uuid.UUID
	ClientID  uuid.UUID
	UserID    *uuid.UUID // nil: nobody was signed in, or it cannot be known
	Stray     bool       // a token request that belongs to no approval known here; otherwise an authorization request
	Outcome   Outcome    // Waiting, Refused or Denied
	Reason    string     // in plain words, one of a few
	RequestID string
}

// Stops keeps stops. Its errors wrap store.ErrUnavailable.
type Stops interface {
	NoteStop(ctx context.Context, s Stop) error
}

// How often the same stop is written down, and how many different ones are remembered. Whatever comes more often, or from more
// places at once, costs no write: a flood cannot fill the table.
const (
	sameAfter  = time.Minute
	rememberTo = 4096
)

type sameness struct {
	tenant, client, user uuid.UUID
	stray                bool
	reason               string
}

func (s Stop) sameness() sameness {
	key := sameness{tenant: s.TenantID, client: s.ClientID, stray: s.Stray, reason: s.Reason}
	if s.UserID != nil {
		key.user = *s.UserID
	}
	return key
}

// A Noter notes stops, few of the same. It is safe for concurrent use.
type Noter struct {
	stops Stops
	now   func() time.Time
	log   *slog.Logger

	mu   sync.Mutex
	last map[sameness]time.Time
}

// NewNoter makes a Noter.
func NewNoter(stops Stops, now func() time.Time, log *slog.Logger) *Noter {
	return &Noter{stops: stops, now: now, log: log, last: map[sameness]time.Time{}}
}

// Note notes a stop of a workspace. A note that fails changes nothing for whoever made the request.
func (n *Noter) Note(ctx context.Context, s Stop) {
	if s.TenantID == uuid.Nil || !n.IsNew(s) {
		return
	}
	if err := n.Write(ctx, s); err != nil {
		n.log.WarnContext(ctx, "a stop was not noted", "error", err)
	}
}

// Write writes a stop down, with the id of the request. Ask IsNew first.
func (n *Noter) Write(ctx context.Context, s Stop) error {
	s.RequestID = web.RequestID(ctx)
	return n.stops.NoteStop(context.WithoutCancel(ctx), s)
}

// Noted says whether the same stop was written down within the last minute.
func (n *Noter) Noted(s Stop) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.noted(s.sameness(), n.now())
}

func (n *Noter) noted(key sameness, now time.Time) bool {
	at, seen := n.last[key]
	return seen && now.Sub(at) < sameAfter
}

// IsNew says whether the stop is to be written down: the same was not within the last minute.
func (n *Noter) IsNew(s Stop) bool {
	key, now := s.sameness(), n.now()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.noted(key, now) {
		return false
	}
	if len(n.last) >= rememberTo {
		for other, at := range n.last {
			if now.Sub(at) >= sameAfter {
				delete(n.last, other)
			}
		}
		if len(n.last) >= rememberTo {
			return false
		}
	}
	n.last[key] = now
	return true
}
