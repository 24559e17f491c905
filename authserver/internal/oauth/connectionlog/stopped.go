package connectionlog

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/net/web"
)

// A StoppedAttempt is an attempt that ended before there was a grant. A consent page that waits for the user's decision
// is one until the user decides.
type StoppedAttempt struct {
	WorkspaceID uuid.UUID
	ClientID    uuid.UUID
	UserID      *uuid.UUID // nil if no user was signed in or the user is unknown
	Orphan      bool       // a token request that belongs to no known approval; otherwise an authorization request
	Outcome     Outcome    // Waiting, Refused or Denied
	Reason      string     // in plain words, one of a few
	RequestID   string
}

// StoppedAttempts stores stopped attempts. Its errors wrap store.ErrUnavailable.
type StoppedAttempts interface {
	RecordStopped(ctx context.Context, s StoppedAttempt) error
}

// repeatAfter limits how often the same stopped attempt is written. maxRemembered limits how many different ones are
// remembered. Anything beyond costs no write, so a flood cannot fill the table.
const (
	repeatAfter   = time.Minute
	maxRemembered = 4096
)

type attemptKey struct {
	workspaceID, client, user uuid.UUID
	orphan                    bool
	reason                    string
}

func (s StoppedAttempt) key() attemptKey {
	key := attemptKey{workspaceID: s.WorkspaceID, client: s.ClientID, orphan: s.Orphan, reason: s.Reason}
	if s.UserID != nil {
		key.user = *s.UserID
	}
	return key
}

// A Recorder records stopped attempts and limits repetitions. It is safe for concurrent use.
type Recorder struct {
	stops StoppedAttempts
	now   func() time.Time
	log   *slog.Logger

	mu   sync.Mutex
	last map[attemptKey]time.Time
}

// NewRecorder returns a Recorder.
func NewRecorder(stops StoppedAttempts, now func() time.Time, log *slog.Logger) *Recorder {
	return &Recorder{stops: stops, now: now, log: log, last: map[attemptKey]time.Time{}}
}

// Record records a stopped attempt of a workspace. A failed write does not affect the request.
func (r *Recorder) Record(ctx context.Context, s StoppedAttempt) {
	if s.WorkspaceID == uuid.Nil || !r.IsNew(s) {
		return
	}
	if err := r.Write(ctx, s); err != nil {
		r.log.WarnContext(ctx, "stopped authorization not recorded", "error", err)
	}
}

// Write writes a stopped attempt with the id of the request. Call IsNew first. After an error, the same attempt is new
// again.
func (r *Recorder) Write(ctx context.Context, s StoppedAttempt) error {
	s.RequestID = web.RequestID(ctx)
	err := r.stops.RecordStopped(context.WithoutCancel(ctx), s)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.last, s.key())
	}
	return err
}

// Recorded reports whether the same attempt was written within the last minute.
func (r *Recorder) Recorded(s StoppedAttempt) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recorded(s.key(), r.now())
}

func (r *Recorder) recorded(key attemptKey, now time.Time) bool {
	at, seen := r.last[key]
	return seen && now.Sub(at) < repeatAfter
}

// IsNew reports whether the attempt should be written, and remembers it. It returns false if the same attempt was
// written within the last minute, or if too many are remembered.
func (r *Recorder) IsNew(s StoppedAttempt) bool {
	key, now := s.key(), r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recorded(key, now) {
		return false
	}
	if len(r.last) >= maxRemembered {
		for other, at := range r.last {
			if now.Sub(at) >= repeatAfter {
				delete(r.last, other)
			}
		}
		if len(r.last) >= maxRemembered {
			return false
		}
	}
	r.last[key] = now
	return true
}
