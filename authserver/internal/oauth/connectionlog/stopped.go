package connectionlog

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/web"
)

// A StoppedAttempt is where a walk stopped before there was a grant. A page that waits for its answer is one, until it
// has it.
type StoppedAttempt struct {
	WorkspaceID uuid.UUID
	ClientID    uuid.UUID
	UserID      *uuid.UUID // nil: nobody was signed in, or it cannot be known
	Orphan      bool       // a token request that belongs to no approval known here; otherwise an authorization request
	Outcome     Outcome    // Waiting, Refused or Denied
	Reason      string     // in plain words, one of a few
	RequestID   string
}

// StoppedAttempts keeps stops. Its errors wrap store.ErrUnavailable.
type StoppedAttempts interface {
	RecordStopped(ctx context.Context, s StoppedAttempt) error
}

// How often the same stop is written down, and how many different ones are remembered. Whatever comes more often, or
// from more places at once, costs no write: a flood cannot fill the table.
const (
	repeatAfter   = time.Minute
	maxRemembered = 4096
)

type attemptKey struct {
	workspaceID, client, user uuid.UUID
	stray                     bool
	reason                    string
}

func (s StoppedAttempt) key() attemptKey {
	key := attemptKey{workspaceID: s.WorkspaceID, client: s.ClientID, stray: s.Orphan, reason: s.Reason}
	if s.UserID != nil {
		key.user = *s.UserID
	}
	return key
}

// A Recorder notes stops, few of the same. It is safe for concurrent use.
type Recorder struct {
	stops StoppedAttempts
	now   func() time.Time
	log   *slog.Logger

	mu   sync.Mutex
	last map[attemptKey]time.Time
}

// NewRecorder makes a Noter.
func NewRecorder(stops StoppedAttempts, now func() time.Time, log *slog.Logger) *Recorder {
	return &Recorder{stops: stops, now: now, log: log, last: map[attemptKey]time.Time{}}
}

// Record notes a stop of a workspace. A note that fails changes nothing for whoever made the request.
func (n *Recorder) Record(ctx context.Context, s StoppedAttempt) {
	if s.WorkspaceID == uuid.Nil || !n.IsNew(s) {
		return
	}
	if err := n.Write(ctx, s); err != nil {
		n.log.WarnContext(ctx, "a stop was not noted", "error", err)
	}
}

// Write writes a stop down, with the id of the request. Ask IsNew first.
func (n *Recorder) Write(ctx context.Context, s StoppedAttempt) error {
	s.RequestID = web.RequestID(ctx)
	return n.stops.RecordStopped(context.WithoutCancel(ctx), s)
}

// Recorded says whether the same stop was written down within the last minute.
func (n *Recorder) Recorded(s StoppedAttempt) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.recorded(s.key(), n.now())
}

func (n *Recorder) recorded(key attemptKey, now time.Time) bool {
	at, seen := n.last[key]
	return seen && now.Sub(at) < repeatAfter
}

// IsNew says whether the stop is to be written down: the same was not within the last minute.
func (n *Recorder) IsNew(s StoppedAttempt) bool {
	key, now := s.key(), n.now()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.recorded(key, now) {
		return false
	}
	if len(n.last) >= maxRemembered {
		for other, at := range n.last {
			if now.Sub(at) >= repeatAfter {
				delete(n.last, other)
			}
		}
		if len(n.last) >= maxRemembered {
			return false
		}
	}
	n.last[key] = now
	return true
}
